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


async def test_a_rehearsal_that_fails_is_tried_again() -> None:
    async with asking({"fault": "render"}) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 1.0), b.endpoint("b"), continues=True)
        await eventually(lambda: a.counts["render"] > 1, "it is asked again")
        assert a.counts["aborted"] == 0, "and stays meanwhile"
        a.set(fault="")
        body = await stream
        assert Merged(body).message == answer(TOKENS)
        assert body.count(MARK) == 1


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
