"""A stream leaves a replica that still answers only where it would go on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elasticd.gateway.continuation.seam import MARK
from elasticd.traffic.leaving import LAST
from tests.bench.stub_engine import expected
from tests.gateway.harness import Stand, StubEngine, eventually
from tests.gateway.merged import Merged
from tests.gateway.test_continuation import CONTEXT, check_whole, continuing, told
from tests.gateway.test_leaving import going, moved, streaming
from tests.gateway.test_parsed_continuation import answer

TOKENS = 100
PARSED = {"itl_ms": 20, "parser": 1}
REFUSALS = [
    ({"skip_special": 1}, "`ignore_eos` is set"),
    ({"other_prompt": 1}, "another prompt"),
]
"""What an engine alone can tell of a request that says `ignore_eos`."""


@asynccontextmanager
async def asking(
    first: dict[str, Any], second: dict[str, Any] | None = None, **limits: float
) -> AsyncIterator[tuple[Stand, StubEngine, StubEngine, asyncio.Task[bytes]]]:
    """A stream with a parser on it and some tokens with its client; `b` is not in the table yet."""
    async with (
        StubEngine(**{**PARSED, **first}) as a,
        StubEngine(**{**PARSED, **(second or {})}) as b,
        continuing(a.endpoint("a"), **limits) as s,
    ):
        stream = asyncio.ensure_future(told(s, max_tokens=TOKENS, ignore_eos=True))
        await eventually(lambda: a.counts["tokens"] > 5, "it is under way")
        yield s, a, b, stream


def why_it_stays(s: Stand) -> list[str]:
    return [e["why"] for e in s.logs if e["event"].startswith("stream stays")]


@pytest.mark.parametrize(("engine", "why"), REFUSALS)
async def test_what_could_not_go_on_stays_on_a_replica_that_is_to_go(
    engine: dict[str, Any], why: str
) -> None:
    async with asking(engine) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 0.3), b.endpoint("b"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert MARK not in body
        (told_why,) = why_it_stays(s)
        assert why in told_why
        await moved(s, finished=1, continued=0, lost=0)
        assert b.counts["requests"] == 0


async def test_what_could_go_on_leaves_after_one_rehearsal() -> None:
    async with asking({}) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 0.3), b.endpoint("b"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1
        assert a.counts["render"] == b.counts["render"] == 1
        await moved(s, continued=1, lost=0)


async def test_at_the_last_moment_it_leaves_without_an_answer() -> None:
    async with asking({"fault": "mute"}) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 0.3), b.endpoint("b"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1
        assert a.counts["render"] == 1
        await moved(s, continued=1, lost=0)


async def test_where_its_own_replica_does_not_answer_another_one_is_asked() -> None:
    async with asking({"itl_ms": 100, "fault": "render"}) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 6.0), b.endpoint("b"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1
        assert (a.counts["render"], b.counts["render"]) == (1, 2), "rehearsed, then for real"


async def test_one_that_does_not_answer_is_not_asked_in_every_look() -> None:
    async with asking({"itl_ms": 40, "fault": "render"}, {"fault": "render"}) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 2.0), b.endpoint("b"), continues=True)
        await eventually(lambda: a.counts["render"] > 1, "it is asked again")
        assert b.counts["render"] <= 2
        b.set(fault="")
        a.set(fault="")
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert a.counts["render"] + b.counts["render"] < 10


@pytest.mark.parametrize(("engine", "why"), REFUSALS)
async def test_a_silent_stream_is_not_moved_to_where_it_could_not_go_on(
    engine: dict[str, Any], why: str
) -> None:
    quick = {"itl_ms": 2}
    async with asking(quick, engine, stall_after=0.05, idle_timeout=60.0) as (s, a, b, stream):
        a.set(itl_ms=1000)
        await s.publish(a.endpoint("a"), b.endpoint("b"), continues=True)
        (told_why,) = await eventually(lambda: why_it_stays(s), "it is found out")
        assert why in told_why
        a.set(itl_ms=2)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert MARK not in body


async def test_a_silent_stream_that_could_go_on_is_moved() -> None:
    async with asking({"itl_ms": 2}, stall_after=0.05, idle_timeout=60.0) as (s, a, b, stream):
        a.set(itl_ms=1e6)
        await s.publish(a.endpoint("a"), b.endpoint("b"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1
        assert b.counts["render"] == 2, "once to see whether it could"


async def test_a_long_stream_is_rehearsed_beside_the_loop_and_leaves() -> None:
    async with streaming(400) as (s, a, b, stream):
        a.set(itl_ms=1)
        await eventually(lambda: a.counts["tokens"] > 100, "it is long")
        a.set(itl_ms=20)
        await s.publish(going(a, "a", LAST + 0.3), b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 400), seams=1)


async def test_a_silent_stream_moves_though_the_first_other_replica_is_dead() -> None:
    """Which is set aside and reported for not answering its question, too."""
    async with (
        StubEngine(itl_ms=2, parser=1) as c,
        asking({"itl_ms": 2}, stall_after=0.05, idle_timeout=60.0) as (s, a, b, stream),
    ):
        await b.replica.down()
        a.set(itl_ms=1e6)
        fleet = a.endpoint("a"), b.endpoint("b"), c.endpoint("c")
        await s.publish(*fleet, continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1
        report = await s.report(lambda r: any(x["replica_id"] == "b" for x in r["broken"]), "b")
        assert report


async def test_a_late_answer_to_a_rehearsal_says_nothing_of_a_stream_that_has_left() -> None:
    """Else it could not leave the next replica, either."""
    async with (
        StubEngine(itl_ms=1, parser=1) as c,
        asking({"fault": "mute"}, {"itl_ms": 20}) as (s, a, b, stream),
    ):
        await s.publish(going(a, "a", LAST + 0.2), b.endpoint("b"), continues=True)
        await eventually(lambda: b.counts["tokens"], "it goes on")
        await s.publish(going(b, "b", LAST + 0.2), c.endpoint("c"), continues=True)
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 2
        assert not why_it_stays(s)


@pytest.mark.parametrize("parser", [0, 1])
async def test_a_replica_that_goes_on_and_says_nothing_is_left_again(parser: int) -> None:
    """Long before its time for a first byte is over: its client is in the middle of an answer."""
    fast = {"itl_ms": 2, "parser": parser}
    async with (
        StubEngine(**fast) as a,
        StubEngine(**fast, ttft_ms=1e6) as b,
        StubEngine(**fast) as c,
        continuing(a.endpoint("a"), stall_after=0.05, idle_timeout=600.0) as s,
    ):
        stream = asyncio.ensure_future(told(s, max_tokens=TOKENS))
        await eventually(lambda: a.counts["tokens"] > 5, "it is under way")
        a.set(itl_ms=1e6)
        await s.publish(a.endpoint("a"), b.endpoint("b"), continues=True)
        await eventually(lambda: b.counts["requests"], "b has it")
        await s.publish(a.endpoint("a"), b.endpoint("b"), c.endpoint("c"), continues=True)
        body = await stream
        assert body.count(MARK) == 1
        assert c.counts["tokens"] + a.counts["tokens"] >= TOKENS


@pytest.mark.parametrize("parser", [0, 1])
async def test_for_one_free_slot_one_stream_leaves(parser: int) -> None:
    async with (
        StubEngine(itl_ms=20, parser=parser) as a,
        StubEngine(itl_ms=20, parser=parser) as b,
        continuing(a.endpoint("a", slots=9)) as s,
        asyncio.TaskGroup() as tasks,
    ):
        streams = [tasks.create_task(told(s, max_tokens=900)) for _ in range(6)]
        await eventually(lambda: len(a.replica.running) == 6, "all are under way")
        await s.publish(going(a, "a", LAST + 3.0), b.endpoint("b", slots=1), continues=True)
        await eventually(lambda: b.counts["tokens"] > 5, "one has left")
        assert len(a.replica.running) == 5
        assert len([e for e in s.logs if e["event"] == "request leaves its replica"]) == 1
        for stream in streams:
            stream.cancel()


async def continued(s: Stand, **want: int) -> None:
    """The controller has been told so many streams of these replicas that went on elsewhere."""
    counts: dict[str, int] = {}

    def tells(report: dict[str, Any]) -> bool:
        counts.update({e["replica_id"]: e["continued"] for e in report["moved"]})
        return all(counts.get(replica, 0) == n for replica, n in want.items() if n)

    await s.report(tells, f"{want} are told")
    assert {replica: counts.get(replica, 0) for replica in want} == want


async def test_a_stream_that_is_lost_by_a_question_that_is_refused_counts_too() -> None:
    parsed = {"itl_ms": 5, "parser": 1}
    async with (
        StubEngine(**parsed, fault="rst", fault_after=9) as a,
        StubEngine(**parsed) as b,
        StubEngine(**parsed) as c,
        continuing(a.endpoint("a"), b.endpoint("b")) as s,
    ):
        stream = asyncio.ensure_future(told(s, max_tokens=TOKENS))
        await eventually(lambda: b.counts["derender"], "b goes on")
        b.replica.server.close()
        b.set(fault="derender")
        await s.publish(c.endpoint("c"), continues=True)
        assert Merged(await stream).message == answer(TOKENS)
        await continued(s, a=1, b=1)


async def test_one_that_never_had_a_stream_is_not_said_to_have_lost_it() -> None:
    parsed = {"itl_ms": 5, "parser": 1}
    async with (
        StubEngine(**parsed, fault="rst", fault_after=9) as a,
        StubEngine(**parsed, fault="render") as never,
        StubEngine(**parsed) as c,
        continuing(a.endpoint("a"), never.endpoint("n")) as s,
    ):
        stream = asyncio.ensure_future(told(s, max_tokens=TOKENS))
        await eventually(lambda: never.counts["render"], "it is asked")
        await s.publish(c.endpoint("c"), continues=True)
        assert Merged(await stream).message == answer(TOKENS)
        await continued(s, a=1, n=0)
