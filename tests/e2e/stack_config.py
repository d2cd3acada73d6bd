"""Configurations of whole stacks for tests: ports and a state directory of their own."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
POOL = "here"
MODEL = "stub"
MOST_NODES = 3
ENGINE = Path(__file__).with_name("gated_engine.py")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def take_own_ports(config: dict[str, Any]) -> None:
    """Gives gateway, admin, agent and head addresses that nobody else has."""
    gateway, admin, agent, head = free_ports(4)
    config.setdefault("gateway", {})["listen"] = f"127.0.0.1:{gateway}"
    config.setdefault("admin", {})["listen"] = f"127.0.0.1:{admin}"
    config.setdefault("agent", {})["listen"] = f"127.0.0.1:{agent}"
    config.setdefault("ray", {})["port"] = head


def write_gated_config(folder: Path) -> Path:
    """One model on the gated engine, one replica on each machine; `folder` must be a short path.

    The engine's gate is `folder/gate`. Nothing is slow on purpose but the loss of an empty
    machine, which stays for as long as a test needs to see it.
    """
    (folder / "model").mkdir()
    config: dict[str, Any] = {
        "cluster": "kills",
        "state_dir": str(folder / "state"),
        "on_stop": "release",
        "node_pools": [
            {
                "name": POOL,
                "provider": "local",
                "max_nodes": MOST_NODES,
                "boot_timeout": "3m",
                "idle_timeout": "5s",
                "gpus": 1,
            }
        ],
        "models": [
            {
                "name": MODEL,
                "source": f"file:{folder / 'model'}",
                "engine": {
                    "command": [sys.executable, "-I", str(ENGINE), "{port}", str(folder / "gate")]
                },
                "start_timeout": "90s",
                "scaling": {"min_replicas": 1, "max_replicas": 2},
            }
        ],
    }
    take_own_ports(config)
    path = folder / "kills.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
