"""An agent that really listens, on a cluster in memory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticd.agent_api.client import AgentClient
from elasticd.agent_api.messages import ClusterState
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
