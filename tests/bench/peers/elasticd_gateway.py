"""elasticd's own gateway with everything on, streams that go on elsewhere included, from a table on
disk, without its controller.

elasticd_gateway.py PORT FOLDER URL...
"""

import asyncio
import logging
import sys
from pathlib import Path

import structlog

from elasticd.gateway import GatewayConfig, run_gateway
from elasticd.gateway.loop import new_loop
from elasticd.gateway.table_store import save_table
from elasticd.routing_table import Endpoint, ModelRoute, RoutingTable, Tier

PORT, HOME, URLS = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
config = GatewayConfig(HOME / "admin.sock", HOME, port=PORT, drain_timeout=1.0)
endpoints = tuple(
    Endpoint(f"r{i}", 1, url, "key", 1024, Tier.OPEN, f"n{i}", "spec") for i, url in enumerate(URLS)
)
route = ModelRoute("stub", endpoints, 5.0, 10_000, continues=True)
save_table(config.table_file, RoutingTable(1, 1, (route,)))
with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(run_gateway(config))
