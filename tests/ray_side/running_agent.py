"""An agent that really listens, on a cluster in memory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from elasticd.agent_api.client import AgentClient
from elasticd.agent_api.messages import ClusterState, NodeReport
from elasticd.cluster_secret import ClusterSecret
from elasticd.ray_side.agent import AgentConfig, serve_cluster
from tests.ray_side.fake_cluster import FakeCluster


@dataclass
class RunningAgent:
    """The agent's URL, its secret, its cluster, and a client that may do everything."""

    url: str
    secret: ClusterSecret
    cluster: FakeCluster
    client: AgentClient
    task: asyncio.Task[None]

    async def until_complete(self) -> ClusterState:
        """The state once the agent has seen its cluster."""
        state = await self.client.state()
        async with asyncio.timeout(10):
            while not state.complete:
                state = await self.client.state(state.incarnation, state.version, 5.0)
        return state

    async def join(self, node_id: str, **more: Any) -> tuple[int, Any]:
        """A machine's first word, with its right token."""
        body = {"node_id": node_id, "token": self.secret.join_token(node_id), "nonce": node_id}
        return await self._post("/v1/nodes/join", {**body, **more}, "")

    async def report(self, node_id: str, boot: str, **more: Any) -> None:
        """What its watcher says every few seconds."""
        token = self.secret.report_token(node_id)
        body = {"boot": boot, **more}
        status, answer = await self._post(f"/v1/nodes/{node_id}/report", body, token)
        assert status == 200, answer

    async def node(self, node_id: str) -> NodeReport:
        """What the agent now says of it."""
        state = await self.client.state()
        return next(n for n in state.nodes if n.node_id == node_id)

    async def until(self, found: Callable[[ClusterState], bool]) -> ClusterState:
        """The first state for which `found`."""
        state = await self.client.state()
        async with asyncio.timeout(20):
            while not found(state):
                state = await self.client.state(state.incarnation, state.version, 0.2)
        return state

    async def _post(self, path: str, body: Any, token: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, headers=headers, json=body) as answer,
        ):
            return answer.status, await answer.json()


@asynccontextmanager
async def running_agent(state_dir: Path, cluster: FakeCluster) -> AsyncIterator[RunningAgent]:
    """Starts it; ends it by SIGTERM as its supervisor would, unless it has ended."""
    secret = ClusterSecret.load_or_create(state_dir)
    (state_dir / "ray").mkdir(exist_ok=True)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    config = AgentConfig(state_dir, "127.0.0.1:6379", port=0)
    task = asyncio.create_task(serve_cluster(config, secret, cluster, port.set_result))
    url = f"http://127.0.0.1:{await port}"
    async with AgentClient(url, secret.agent_token) as client:
        yield RunningAgent(url, secret, cluster, client, task)
    if not task.done():
        os.kill(os.getpid(), signal.SIGTERM)
        await task
