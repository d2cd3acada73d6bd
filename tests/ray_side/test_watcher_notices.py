"""What machines hear of their end goes through the agent: at once, with the time that is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.agent_api.messages import ClusterState, NodeReport, NoticeReport
from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import RunningAgent, running_agent

GOES = {"notice_id": "ec2/n-9/interruption/x", "kind": "interruption", "seconds_left": 90.0}
HINT = {"notice_id": "ec2/n-9/rebalance/x", "kind": "rebalance", "seconds_left": None}


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[RunningAgent]:
    async with running_agent(tmp_path / "state", FakeCluster()) as running:
        await running.until_complete()
        await running.join("n-9")
        yield running


async def settled(agent: RunningAgent) -> ClusterState:
    """A state after which nothing is new but what a test does."""
    return await agent.until(lambda state: any(n.node_id == "n-9" for n in state.nodes))


def of(state: ClusterState) -> NodeReport:
    return next(n for n in state.nodes if n.node_id == "n-9")


async def test_a_notice_wakes_whoever_waits_for_news(agent: RunningAgent) -> None:
    await agent.report("n-9", "starting ray")
    before = await settled(agent)
    waiting = asyncio.ensure_future(agent.client.state(before.incarnation, before.version, 30.0))
    await agent.report("n-9", "starting ray", notices=[GOES, HINT], notices_complete=True)
    async with asyncio.timeout(10):
        node = of(await waiting)
    assert [(n.notice_id, n.kind) for n in node.notices] == [
        (GOES["notice_id"], "interruption"),
        (HINT["notice_id"], "rebalance"),
    ]
    assert node.notices_complete


async def test_the_time_that_is_left_runs_on_and_is_no_news(agent: RunningAgent) -> None:
    await agent.report("n-9", "starting ray", notices=[GOES, HINT], notices_complete=True)
    first = await settled(agent)
    await agent.report("n-9", "starting ray", notices=[{**GOES, "seconds_left": 80.0}, HINT],
                       notices_complete=True)  # fmt: skip
    second = await agent.client.state()
    assert second.version == first.version
    left = of(second).notices[0].seconds_left
    assert left is not None
    assert 0 < left <= 80.0
    assert of(second).notices[1].seconds_left is None
    third = await agent.until(lambda state: (_left(state) or 99.0) < left)
    assert third.version == first.version


def _left(state: ClusterState) -> float | None:
    return of(state).notices[0].seconds_left


async def test_a_notice_that_is_over_is_news(agent: RunningAgent) -> None:
    await agent.report("n-9", "starting ray", notices=[GOES], notices_complete=True)
    before = await settled(agent)
    await agent.report("n-9", "starting ray", notices=[], notices_complete=True)
    after = await agent.client.state()
    assert after.version > before.version
    assert (of(after).notices, of(after).notices_complete) == ((), True)


async def test_of_a_watcher_that_tells_no_notices_nothing_is_known(agent: RunningAgent) -> None:
    await agent.report("n-9", "starting ray")
    node = await agent.node("n-9")
    assert (node.notices, node.notices_complete) == ((), False)


@pytest.mark.parametrize(
    "notices",
    [
        "x",
        {"a": 1},
        [5],
        [{}],
        [{"notice_id": "x"}],
        [{**GOES, "notice_id": ""}],
        [{**GOES, "notice_id": "x" * 10_000}],
        [{**GOES, "kind": ["interruption"]}],
        [{**GOES, "kind": "a\nb"}],
        [GOES] * 1000,
    ],
)
async def test_a_report_with_a_notice_that_cannot_be_read_is_refused_whole(
    agent: RunningAgent, notices: Any
) -> None:
    await agent.report("n-9", "starting ray", notices=[GOES], notices_complete=True)
    with pytest.raises(AssertionError, match="not a watcher report"):
        await agent.report("n-9", "starting ray", notices=notices, notices_complete=True)
    assert len((await agent.node("n-9")).notices) == 1, "the earlier one still holds"


@pytest.mark.parametrize("left", ["soon", [], -5, 10**400, True])
async def test_a_time_left_that_is_none_is_never_more_time(agent: RunningAgent, left: Any) -> None:
    await agent.report("n-9", "starting ray", notices=[{**GOES, "seconds_left": left}])
    [notice] = (await agent.node("n-9")).notices
    assert notice.seconds_left is not None
    assert notice.seconds_left <= 1.0


def test_the_state_survives_the_wire() -> None:
    node = {"node_id": "n", "alive": True, "notices": [GOES, HINT], "notices_complete": True}
    data = {"incarnation": "i", "version": 1, "complete": True, "head_alive": True, "nodes": [node]}
    state = ClusterState.from_json(data)
    assert state.nodes[0].notices == (NoticeReport(**GOES), NoticeReport(**HINT))  # type: ignore[arg-type]
    assert ClusterState.from_json(state.to_json()) == state
