"""elasticd's own gateway, from a table on disk, without its controller.

elasticd_gateway.py PORT FOLDER URL...
"""

import logging
import sys
from pathlib import Path

import structlog
import uvloop

from elasticd.gateway import GatewayConfig, run_gateway
from elasticd.gateway.table_store import save_table
from elasticd.routing_table import Endpoint, ModelRoute, RoutingTable, Tier

PORT, HOME, URLS = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
config = GatewayConfig(HOME / "admin.sock", HOME, port=PORT, drain_timeout=1.0)
endpoints = tuple(
    Endpoint(f"r{i}", 1, url, "key", 1024, Tier.OPEN, f"n{i}", "spec") for i, url in enumerate(URLS)
)
save_table(config.table_file, RoutingTable(1, 1, (ModelRoute("stub", endpoints, 5.0, 10_000),)))
uvloop.run(run_gateway(config))
