"""A machine's link is really taken down until Ray takes it for dead, and comes up again.

    unshare --net --pid --fork --mount-proc python -m tests.ray_side.cut_off

Real Ray: head and agent here, one node in a network namespace of its own with a replica (a stub
engine). Prints what was seen of the replica before, meanwhile and after.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from elasticd.agent_api.client import AgentClient
from elasticd.agent_api.messages import ClusterState
from tests.e2e.own_network import FarMachine, come_up
from tests.node.waiting import alive
from tests.ray_side.small_cluster import SmallCluster

NODE, FENCED, NEXT = "n-1", "r-1", "r-2"
_STUB = str(Path(__file__).parent / "stub_engine.py")
_WITHIN = 120.0
_HEAD = """
import sys
from elasticd.node import head, ray_env
# A dead link is noticed after seconds, not after a minute.
ray_env._SHARED |= {
    "RAY_health_check_timeout_ms": "1000", "RAY_health_check_failure_threshold": "3"
}
sys.exit(head.main(sys.argv[1:]))
"""
_AGENT = """
import asyncio, sys
from pathlib import Path
from elasticd.ray_side.agent import AgentConfig, run_agent
asyncio.run(run_agent(AgentConfig(Path(sys.argv[1]), sys.argv[2], sys.argv[4], int(sys.argv[3]))))
"""


class FarCluster(SmallCluster):
    """Its one node is on a machine behind a link."""

    def __init__(self, folder: Path, machine: FarMachine) -> None:
        super().__init__(folder)
        self._machine = machine
        self.agent_url = f"http://{machine.hub}:{self.agent_port}"
        self.client = AgentClient(self.agent_url, self.secret.agent_token)

    def start_head(self) -> None:
        place = ("--port", str(self.ray_port), "--node-ip", self._machine.hub)
        self._run("head", "-c", _HEAD, "--state-dir", str(self.state_dir), *place)

    def start_agent(self) -> None:
        hub = self._machine.hub
        head = f"{hub}:{self.ray_port}"
        self._run("agent", "-c", _AGENT, str(self.state_dir), head, str(self.agent_port), hub)

    def start_node(self, node_id: str, gpus: int, **env: str) -> None:
        arguments = ("--node-id", node_id, "--agent", self.agent_url)
        machine = {
            "ELASTICD_JOIN_TOKEN": self.secret.join_token(node_id),
            "ELASTICD_NODE_DIR": str(self.folder / node_id),
            "ELASTICD_DECLARED_GPUS": str(gpus),
        }
        watcher = (sys.executable, "-m", "elasticd.node.watcher", *arguments)
        with (self.folder / f"{node_id}.log").open("ab") as log:
            self.running[node_id] = self._machine.start(
                *watcher,
                *("--node-ip", self._machine.address),
                env={**os.environ, **machine, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def serve(self, replica_id: str) -> int:
        """Starts a replica; the process id of its engine, once it is ready."""
        words = (sys.executable, _STUB, "{port}", "tell-pid")
        order = self.order(replica_id, NODE, 1, engine_kind="command", engine_argv=words)
        await self.client.start(order)
        [report] = await self.until_ready(replica_id, within=_WITHIN)
        return int(next(line for line in report.stderr_tail if line.isdecimal()))


async def play(cluster: FarCluster, machine: FarMachine) -> dict[str, Any]:
    """All of it."""
    cluster.start_head_and_agent()
    cluster.start_node(NODE, 1)
    first = _ray_node(await cluster.until(_joined, _WITHIN))
    engine = await cluster.serve(FENCED)
    machine.cut()
    cut_at = time.monotonic()
    await cluster.until(lambda s: s.complete and not _joined(s), _WITHIN)
    noticed, outlived = time.monotonic() - cut_at, alive(engine)
    machine.heal()
    healed_at = time.monotonic()
    served_again: list[str] = []

    def joined_again(state: ClusterState) -> bool:
        served_again.extend(_ready(state))
        return _joined(state) and _ray_node(state) != first

    await cluster.until(joined_again, _WITHIN)
    while alive(engine) and time.monotonic() - healed_at < _WITHIN:
        await asyncio.sleep(0.1)
    taken_down = time.monotonic() - healed_at
    after = await cluster.serve(NEXT)
    state = await cluster.client.state()
    return {
        "noticed_after": round(noticed, 1),
        "engine_outlived_the_cut": outlived,
        "engine_lives": alive(engine),
        "taken_down_after": round(taken_down, 1),
        "served_again": served_again,
        "ready_at_the_end": _ready(state),
        "next_engine_lives": alive(after),
    }


def _joined(state: ClusterState) -> bool:
    return state.complete and any(n.alive and n.boot == "up" for n in state.nodes)


def _ray_node(state: ClusterState) -> str:
    return next(n.ray_node_id for n in state.nodes if n.alive)


def _ready(state: ClusterState) -> list[str]:
    return [r.replica_id for r in state.replicas if r.phase == "ready"]


async def run() -> dict[str, Any]:
    # Short: Ray's socket paths would be too long.
    folder = tempfile.TemporaryDirectory(prefix="el-", ignore_cleanup_errors=True)
    with folder as path, FarMachine(1) as machine:
        cluster = FarCluster(Path(path), machine)
        async with cluster.client:
            try:
                return await play(cluster, machine)
            finally:
                await cluster.stop()


if __name__ == "__main__":
    come_up()
    print(json.dumps(asyncio.run(run())))
