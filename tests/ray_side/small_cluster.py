"""A small cluster of real processes on real Ray: head, agent, and as many nodes as a test likes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.agent_api.client import AgentClient, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaOrder, ReplicaReport
from elasticd.cluster_secret import ClusterSecret
from tests.ray_side.fake_cluster import order

_AGENT = """
import asyncio, sys
from pathlib import Path
from elasticd.ray_side.agent import AgentConfig, run_agent
asyncio.run(run_agent(AgentConfig(Path(sys.argv[1]), sys.argv[2], port=int(sys.argv[3]))))
"""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])


class SmallCluster:
    """Started by `small_cluster`; `client` speaks to its agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.secret = ClusterSecret.load_or_create(self.state_dir)
        self.ray_port, self.agent_port = free_port(), free_port()
        self.agent_url = f"http://127.0.0.1:{self.agent_port}"
        self.client = AgentClient(self.agent_url, self.secret.agent_token)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """All that were started and not killed, in this order."""
        return list(self.running.values())

    def start_head_and_agent(self) -> None:
        self.start_head()
        self.start_agent()

    def start_head(self) -> None:
        arguments = ("--state-dir", str(self.state_dir), "--port", str(self.ray_port))
        self._run("head", "-m", "elasticd.node.head", *arguments)

    def start_agent(self) -> None:
        address = f"127.0.0.1:{self.ray_port}"
        self._run("agent", "-c", _AGENT, str(self.state_dir), address, str(self.agent_port))

    def keep_agent(self) -> None:
        """Does what its supervisor does: an agent that has ended is started again."""
        if self.running["agent"].poll() is not None:
            self.start_agent()

    def kill(self, name: str) -> None:
        """SIGKILL to one of them: `head`, `agent`, or a node's watcher by the node's id."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def start_node(self, node_id: str, gpus: int, **env: str) -> None:
        """A node with so many declared GPUs and, on top of ours, this environment."""
        arguments = ("--node-id", node_id, "--agent", self.agent_url)
        machine = {
            "ELASTICD_JOIN_TOKEN": self.secret.join_token(node_id),
            "ELASTICD_NODE_DIR": str(self.folder / node_id),
            "ELASTICD_DECLARED_GPUS": str(gpus),
        }
        self._run(node_id, "-m", "elasticd.node.watcher", *arguments, **machine, **env)

    def _run(self, name: str, *arguments: str, **env: str) -> None:
        clean = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                env=clean | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def order(self, replica_id: str, node_id: str, gpus: int, **more: Any) -> ReplicaOrder:
        """An order with its key, on ports of this cluster's own choice."""
        key = self.secret.engine_key(replica_id, 1)
        given = {"node_id": node_id, "gpus": gpus, "key": key, "port_min": 22000, "port_max": 22999}
        return order(replica_id, **{**given, **more})

    async def until(
        self, found: Callable[[ClusterState], bool], within: float = 90.0, keep_agent: bool = False
    ) -> ClusterState:
        """The first state for which `found`; fails the test with the last one and all logs."""
        state: ClusterState | None = None
        try:
            async with asyncio.timeout(within):
                while True:
                    if keep_agent:
                        self.keep_agent()
                    try:
                        known = (state.incarnation, state.version) if state else ("", -1)
                        state = await self.client.state(*known, wait=1.0)
                    except AgentUnreachable:
                        await asyncio.sleep(0.1)
                        continue
                    if found(state):
                        return state
        except TimeoutError:
            logs = {log.name: log.read_text()[-2000:] for log in self.folder.glob("*.log")}
            pytest.fail(f"not within {within} s; last: {state}; {logs}")

    async def until_ready(self, *replica_ids: str, within: float = 90.0) -> list[ReplicaReport]:
        """The reports of these replicas, once all are ready."""

        def ready(state: ClusterState) -> bool:
            phases = {r.replica_id: r.phase for r in state.replicas}
            return all(phases.get(replica_id) == "ready" for replica_id in replica_ids)

        state = await self.until(ready, within)
        return [r for i in replica_ids for r in state.replicas if r.replica_id == i]

    async def stop(self) -> list[int]:
        """Ends nodes, agent and head in this order; their exit codes."""
        codes = []
        last = ("agent", "head")
        for name in sorted(self.running, key=lambda n: last.index(n) if n in last else -1):
            process = self.running.pop(name)
            process.terminate()
            codes.append(await asyncio.to_thread(process.wait, 60))
        return codes


@contextlib.asynccontextmanager
async def small_cluster() -> AsyncIterator[SmallCluster]:
    """One cluster, ended with the block."""
    # Not below pytest's own folder: Ray's socket paths would be too long.
    with tempfile.TemporaryDirectory(prefix="el-", ignore_cleanup_errors=True) as folder:
        cluster = SmallCluster(Path(folder))
        async with cluster.client:
            try:
                yield cluster
            finally:
                await cluster.stop()
