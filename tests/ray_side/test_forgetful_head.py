"""A head that has come back without its memory knows of no machine: that is not absence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticd.agent_api.messages import ClusterState
from elasticd.ray_side import agent as agent_module
from elasticd.ray_side import nodes as nodes_module
from elasticd.ray_side.cluster import DriverLost, HeadAway, RayNode
from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import RunningAgent, running_agent

MEMORY = "has lost its memory"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "LOOK", 0.01)
    monkeypatch.setattr(nodes_module, "SURELY_MISSING", 0.0)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[RunningAgent]:
    async with running_agent(tmp_path, FakeCluster()) as running:
        await running.until_complete()
        yield running


async def test_a_machine_that_serves_and_is_unknown_to_the_head_is_not_called_dead(
    agent: RunningAgent,
) -> None:
    agent.cluster.ray_nodes = []
    await agent.report("n-1", "up")
    state = await agent.until(lambda s: MEMORY in s.detail)
    assert "n-1" in state.detail
    assert not state.complete
    assert [(n.node_id, n.alive) for n in state.nodes] == [("n-1", None)]


async def test_it_is_dead_there_once_it_joins_again_and_alive_once_it_has(
    agent: RunningAgent,
) -> None:
    agent.cluster.ray_nodes = []
    await agent.report("n-1", "up")
    await agent.until(lambda s: MEMORY in s.detail)
    await agent.report("n-1", "joining again: Ray ended by itself (exit 1)")
    state = await agent.until(lambda s: s.complete)
    assert [n.alive for n in state.nodes] == [False]
    agent.cluster.ray_nodes = [RayNode("n-1", "ray-new", True, "10.0.0.1", 2)]
    await agent.report("n-1", "up")
    await agent.until(lambda s: s.complete and [n.alive for n in s.nodes] == [True])


async def test_a_machine_that_never_joins_again_is_dead_after_a_while(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.cluster.ray_nodes = []
    await agent.report("n-1", "up")
    await agent.until(lambda s: MEMORY in s.detail)
    monkeypatch.setattr(nodes_module, "STRANDED_PATIENCE", 0.0)
    state = await agent.until(lambda s: s.complete)
    assert [n.alive for n in state.nodes] == [False]


async def test_the_word_of_a_watcher_that_fell_silent_does_not_count(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.cluster.ray_nodes = []
    await agent.report("n-1", "up")
    await agent.until(lambda s: MEMORY in s.detail)
    monkeypatch.setattr(nodes_module, "STALE", 0.0)
    state = await agent.until(lambda s: s.complete)
    assert [n.alive for n in state.nodes] == [False]


async def test_a_restarted_agent_listens_to_the_machines_before_it_calls_them_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_agent(tmp_path, FakeCluster()) as earlier:
        await earlier.until_complete()
        assert (await earlier.join("n-1"))[0] == 200
    forgetful = FakeCluster()
    forgetful.ray_nodes = []
    async with running_agent(tmp_path, forgetful) as agent:
        state = await agent.until(lambda s: s.head_alive)
        assert not state.complete
        assert "listening" in state.detail
        await agent.report("n-1", "up")
        await agent.until(lambda s: MEMORY in s.detail)
        # Nobody else speaks for as long as a machine takes to say something.
        monkeypatch.setattr(nodes_module, "REPORT_EVERY", 0.0)
        await agent.report("n-1", "failed: it does not matter")
        await agent.until(lambda s: s.complete)


async def test_a_first_start_waits_for_nobody(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.ray_nodes = []
    async with running_agent(tmp_path, cluster) as agent:
        state = await agent.until(lambda s: s.head_alive)
        assert state.complete


async def test_a_machine_that_ray_has_drained_does_not_join_again(agent: RunningAgent) -> None:
    agent.cluster.ray_nodes = [RayNode("n-1", "ray-1", False, "10.0.0.1", 2, draining=True)]
    await agent.until(lambda s: not any(n.alive for n in s.nodes))
    status, answer = await agent.join("n-1")
    assert status == 403
    assert "being given back" in answer["error"]


async def test_a_watcher_whose_ray_is_over_is_believed_before_ray_notices(
    agent: RunningAgent,
) -> None:
    await agent.report("n-1", "joining again: Ray ended by itself (exit 1)")
    assert (await agent.node("n-1")).alive is False
    await agent.report("n-1", "up")
    assert (await agent.node("n-1")).alive is True


async def test_the_log_of_a_machine_that_is_not_in_ray_is_news(agent: RunningAgent) -> None:
    await agent.report("n-9", "starting ray")
    before = await agent.client.state()
    await agent.report("n-9", "starting ray", log_tail=["it hangs here"])

    def told(state: ClusterState) -> bool:
        return any(n.log_tail == ("it hangs here",) for n in state.nodes)

    state = await agent.until(told)
    assert state.version > before.version


def test_a_head_of_another_cluster_ends_this_driver_and_one_that_is_away_does_not() -> None:
    from elasticd.ray_side.private import HeadClient

    class Refusing:
        def __init__(self, why: str) -> None:
            self.why = why

        def get_all_node_info(self, timeout: float) -> dict[str, str]:
            raise RuntimeError(self.why)

    head = HeadClient("127.0.0.1:1")
    for why, kind in (("RPC error: WrongClusterID: Perhaps", DriverLost), ("timeout", HeadAway)):
        setattr(head, "_connected", lambda why=why: Refusing(why))  # noqa: B010
        with pytest.raises(kind):
            head.table()
