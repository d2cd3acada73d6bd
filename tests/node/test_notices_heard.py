"""From a cloud's metadata service to the controller's event: the real watcher, the real agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.clock import Clock
from elasticd.core.events import ClusterObserved, Event, NodeSeen
from elasticd.runtime.cluster_watch import ClusterWatch, PollTimes
from tests.node.fake_metadata import FakeGcp, running
from tests.node.programs import program
from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import RunningAgent, running_agent

pytestmark = pytest.mark.slow


class Ears:
    """What the controller hears of one machine, and a way to wait for it."""

    def __init__(self) -> None:
        self.seen: NodeSeen | None = None
        self._news = asyncio.Event()

    def emit(self, event: Event) -> None:
        if isinstance(event, ClusterObserved):
            self.seen = next((n for n in event.nodes if n.node_id == "n-9"), None)
            self._news.set()

    async def until(self, found: Callable[[NodeSeen], bool]) -> NodeSeen:
        async with asyncio.timeout(30):
            while self.seen is None or not found(self.seen):
                self._news.clear()
                await self._news.wait()
        return self.seen


async def test_a_machine_that_is_preempted_is_known_to_the_controller_and_so_is_the_end_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.ray_side.agent.LOOK", 0.01)
    async with running_agent(tmp_path / "state", FakeCluster()) as agent:
        await agent.until_complete()
        with running(FakeGcp()) as server:
            await _live_through(agent, server, tmp_path)


async def _live_through(agent: RunningAgent, server: FakeGcp, folder: Path) -> None:
    ears = Ears()
    watch = ClusterWatch(agent.client, Clock(), ears.emit, PollTimes())
    watching = asyncio.ensure_future(watch.run())
    environment = {
        "ELASTICD_JOIN_TOKEN": agent.secret.join_token("n-9"),
        "ELASTICD_NODE_DIR": str(folder / "node"),
        "ELASTICD_NOTICES": "gcp",
        "ELASTICD_METADATA_URL": server.url,
    }
    told = ("--node-id", "n-9", "--agent", agent.url)
    with program(folder, "elasticd.node.watcher", *told, **environment):
        seen = await ears.until(lambda node: node.boot == "up" and node.notices_complete)
        assert seen.notices == ()
        server.set("preempted", "TRUE")
        [notice] = (await ears.until(lambda node: bool(node.notices))).notices
        assert notice.kind == "interruption"
        assert notice.seconds_left is not None
        assert notice.seconds_left <= 30
        server.set("preempted", "FALSE")
        await ears.until(lambda node: not node.notices)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
