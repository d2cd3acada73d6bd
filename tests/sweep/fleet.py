"""The fleet that is swept: its cloud and its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sweep.view import CLUSTER

POOL, MODEL = "pool", "stub"

LAGS = {"list_lag": 0.4, "ended_lag": 0.3, "lookup_lag": 0.3, "unknown_lag": 0.2, "tags_lag": 0.2}
"""How late the cloud knows of its own machines, in seconds."""

LATE = 0.5
"""Seconds after which a creation is delivered whose answer was none."""

VISIBILITY = "3s"
"""What the pool is told of lags and late deliveries: longer than both, also on a busy machine."""

OFFERS = [
    {"zone": zone, "machine_type": "g1.small", "market": "spot", "price": price}
    for zone, price in (("zone-a", 400_000), ("zone-b", 450_000))
]


def configuration(folder: Path, agent_port: int, url: str) -> dict[str, Any]:
    """One model, one pool on the fake cloud at `url`; the core's times are the core's seconds."""
    return {
        "cluster": CLUSTER,
        "state_dir": str(folder / "state"),
        "on_stop": "keep",
        "agent": {"listen": f"127.0.0.1:{agent_port}"},
        "node_pools": [
            {
                "name": POOL,
                "provider": "fake",
                "market": "spot",
                "max_nodes": 5,
                "idle_timeout": "3s",
                "url": url,
                "visibility": VISIBILITY,
                "notices_every": "200ms",
            }
        ],
        "models": [
            {
                "name": MODEL,
                "source": f"file:{folder / 'model'}",
                "engine": {"command": ["serve", "{port}"]},
                "drain_timeout": "1s",
                "scaling": {"min_replicas": 1, "max_replicas": 4},
            }
        ],
    }
