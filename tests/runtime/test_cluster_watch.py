"""The agent's state becomes observations; its silence becomes "not known"."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, NodeReport, NoticeReport, ReplicaReport
from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    Event,
    NodeSeen,
    NoticeSeen,
    ReplicaSeen,
)
from elasticd.runtime.cluster_watch import ClusterWatch, PollTimes, observed
from tests.runtime.fakes import FakeAgent, hang
from tests.runtime.virtual import LoopClock, virtual

TIMES = PollTimes(wait=2.0, late=10.0, retry=1.0, spacing=0.2)


def state(version: int, **more: Any) -> ClusterState:
    return ClusterState("life-1", version, complete=True, head_alive=True, **more)


def report(phase: str, **more: Any) -> ReplicaReport:
    return ReplicaReport("replica-1", 3, "node-1", "tiny", "hash", phase, **more)


async def watched(agent: FakeAgent, seconds: float) -> tuple[list[Event], ClusterWatch]:
    heard: list[Event] = []
    watch = ClusterWatch(agent, LoopClock(), heard.append, TIMES)
    task = asyncio.ensure_future(watch.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return heard, watch


@virtual
async def test_each_poll_names_the_last_state_seen() -> None:
    agent = FakeAgent(state(4), state(9), state(9), slow_state(9))
    heard, watch = await watched(agent, 1.0)
    assert agent.polls[:3] == [("", -1, 2.0), ("life-1", 4, 2.0), ("life-1", 9, 2.0)]
    assert len(heard) == 3
    assert watch.seen


def slow_state(version: int) -> Callable[[], Any]:
    async def after_the_wait() -> ClusterState:
        await asyncio.sleep(2.0)
        return state(version)

    return after_the_wait


@virtual
async def test_an_unchanged_state_is_observed_again_because_its_age_is_a_fact() -> None:
    heard, watch = await watched(FakeAgent(state(1), slow_state(1)), 9.0)
    assert len(heard) == 5
    assert set(map(type, heard)) == {ClusterObserved}
    assert watch.summary()["seen_age"] < 2.3


@virtual
async def test_an_agent_that_is_away_is_told_and_asked_again_from_the_start() -> None:
    agent = FakeAgent(state(4), AgentUnreachable("refused"), AgentRefused("token"), state(1))
    heard, watch = await watched(agent, 2.3)
    assert [type(e) for e in heard[:4]] == [
        ClusterObserved,
        ClusterUnreachable,
        ClusterUnreachable,
        ClusterObserved,
    ]
    assert heard[1] == ClusterUnreachable("refused")
    assert agent.polls[2][:2] == ("", -1)
    assert watch.summary()["error"] == ""


@virtual
async def test_a_hung_agent_counts_as_away() -> None:
    heard, watch = await watched(FakeAgent(hang), 13.0)
    assert heard == [ClusterUnreachable("the agent did not answer within 12 s")]
    assert not watch.seen
    assert watch.summary() == {"seen_age": None, "error": heard[0].message}


@virtual
async def test_an_answer_nobody_understands_is_no_knowledge() -> None:
    heard, _ = await watched(FakeAgent(ValueError("not a cluster state")), 0.5)
    assert heard == [ClusterUnreachable("not a cluster state")]


def test_the_agents_words_become_the_cores() -> None:
    seen = observed(
        ClusterState(
            "life-1",
            7,
            complete=False,
            head_alive=False,
            nodes=(NodeReport("node-1", None, "abc", "10.0.0.1", 2, "up", 1.0, ("a", "b")),),
            replicas=(
                report("ready", url="http://h:1", stalled_for=3.0),
                report("starting", load_phase="weights", stderr_tail=("x",)),
                report("stopped", error="exit 1"),
            ),
            detail="head away",
        )
    )
    assert seen == ClusterObserved(
        nodes=(NodeSeen("node-1", None, 2, "up", ("a", "b")),),
        replicas=(
            ReplicaSeen("replica-1", 3, "node-1", "ready", "http://h:1", stalled_for=3.0),
            ReplicaSeen(
                "replica-1", 3, "node-1", "starting", load_phase="weights", log_tail=("x",)
            ),
            ReplicaSeen("replica-1", 3, "node-1", "stopped", error="exit 1"),
        ),
        complete=False,
        detail="head away",
    )


def test_why_a_machine_was_not_let_in_reaches_the_core() -> None:
    refused = NodeReport("node-1", False, boot="failed: versions", mismatch="Ray differs")
    [node] = observed(state(1, nodes=(refused,))).nodes
    assert node == NodeSeen("node-1", False, 0, "failed: versions", mismatch="Ray differs")


def test_of_a_replica_that_serves_nothing_is_told_that_changes_with_every_report() -> None:
    def told(**more: Any) -> ClusterObserved:
        return observed(state(1, replicas=(report("ready", **more),)))

    first = told(stalled_for=0.1, stderr_tail=("12 tokens/s",))
    assert first == told(stalled_for=0.9, stderr_tail=("15 tokens/s",))
    assert told(stalled_for=7.9).replicas[0].stalled_for == 7.0
    stopped = observed(state(1, replicas=(report("stopped", stderr_tail=("boom",)),)))
    assert stopped.replicas[0].log_tail == ("boom",)


def test_a_replica_that_is_stopping_or_in_an_unheard_of_phase_is_unknown() -> None:
    for phase in ("stopping", "unknown", "dancing"):
        [replica] = observed(state(1, replicas=(report(phase),))).replicas
        assert replica.phase == "unknown"


def test_a_time_that_is_no_number_is_not_known() -> None:
    [replica] = observed(state(1, replicas=(report("ready", stalled_for=math.nan),))).replicas
    assert replica.stalled_for is None


@virtual
async def test_a_notice_of_a_machine_is_observed_with_the_time_that_is_left_now() -> None:
    def told(left: float) -> Callable[[], Any]:
        async def later() -> ClusterState:
            await asyncio.sleep(2.0)
            notice = NoticeReport("x", "interruption", left)
            return state(
                1, nodes=(NodeReport("n", True, notices=(notice,), notices_complete=True),)
            )

        return later

    heard, _ = await watched(FakeAgent(told(90.0), told(88.0), told(86.0)), 4.5)
    seen = [event.nodes[0] for event in heard if isinstance(event, ClusterObserved)]
    assert [node.notices for node in seen] == [
        (NoticeSeen("x", "interruption", 90.0),),
        (NoticeSeen("x", "interruption", 88.0),),
    ]
    assert seen[0].notices_complete


@virtual
async def test_after_a_quiet_time_the_next_news_waits_for_nothing() -> None:
    """A notice that comes while a question hangs is followed by the next question at once."""
    agent = FakeAgent(slow_state(1), state(2), slow_state(3))
    await watched(agent, 2.01)
    assert len(agent.polls) == 2


@virtual
async def test_a_replica_that_was_not_heard_of_for_a_while_is_not_said_to_answer() -> None:
    """Also where the agent has no news: that an answer grows old is none."""
    fresh = state(1, replicas=(report("ready", age=0.4),))
    stale = state(1, replicas=(report("ready", age=4.0),))
    mute = state(1, replicas=(report("ready", age=0.4, answers=False),))
    heard, _ = await watched(FakeAgent(fresh, stale, fresh, mute, slow_state(1)), 0.9)
    told = [e.replicas[0].answers for e in heard if isinstance(e, ClusterObserved)]
    assert told == [True, False, True, False]
