"""A replica that is to go: what runs there is finished there, or goes on elsewhere in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from elasticd.routing_table import Endpoint, Tier
from elasticd.traffic.leaving import LAST
from tests.bench.stub_engine import expected
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    events_of,
    eventually,
    stand,
)
from tests.gateway.test_continuation import CONTEXT, check_whole, continuing, text_of


def going(engine: StubEngine | ScriptedEngine, name: str, seconds: float) -> Endpoint:
    """It takes nothing new and is stopped in so many seconds."""
    return engine.endpoint(name, tier=Tier.CLOSED, cut_at=time.time() + seconds)


@asynccontextmanager
async def asked(s: Stand, **fields: Any) -> AsyncIterator[asyncio.Task[bytes]]:
    """A stream of which the first token is with the client; the whole of it in the end."""
    async with s.post(stream=True, **fields) as answer:
        first = await answer.content.readuntil(b"content")

        async def rest() -> bytes:
            return bytes(first + await answer.read())

        task = asyncio.create_task(rest())
        yield task
        task.cancel()


@asynccontextmanager
async def streaming(
    tokens: int, **fields: Any
) -> AsyncIterator[tuple[Stand, StubEngine, StubEngine, asyncio.Task[bytes]]]:
    """A stream of so many tokens on `a`, 20 ms each, and `b`, which is not in the table yet."""
    async with (
        StubEngine(itl_ms=20) as a,
        StubEngine() as b,
        continuing(a.endpoint("a")) as s,
        asked(s, max_tokens=tokens, **fields) as stream,
    ):
        yield s, a, b, stream


async def moved(s: Stand, **counts: int) -> None:
    """The controller has been told these counts of replica `a`."""

    def tells(report: dict[str, Any]) -> bool:
        entries = [e for e in report["moved"] if e["replica_id"] == "a"]
        return any(all(e[k] == n for k, n in counts.items()) for e in entries)

    await s.report(tells, f"{counts} are told")


async def test_a_stream_that_is_not_done_in_time_goes_on_elsewhere_before_the_cut() -> None:
    async with streaming(200) as (s, a, b, stream):
        cut = time.time() + LAST + 0.2
        leaver = a.endpoint("a", tier=Tier.CLOSED, cut_at=cut)
        await s.publish(leaver, b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 200), seams=1)
        assert time.time() < cut, "it left before"
        assert a.counts["tokens"] + b.counts["tokens"] < 200 + 10, "nothing is generated twice"
        await moved(s, continued=1, finished=0, restarted=0, lost=0)
        assert not any(r["broken"] for r in s.controller.reports), "nothing is wrong with it"


async def test_the_cut_is_on_the_clock_of_the_controller() -> None:
    async with streaming(60) as (s, a, b, stream):
        s.controller.behind = 1000.0
        on_its_clock = time.time() - 1000.0 + 60.0
        leaver = a.endpoint("a", tier=Tier.CLOSED, cut_at=on_its_clock)
        await s.publish(leaver, b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 60), seams=0)


async def test_what_will_be_done_in_time_is_finished_where_it_is() -> None:
    async with streaming(40) as (s, a, b, stream):
        await s.publish(going(a, "a", 60.0), b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 40), seams=0)
        await moved(s, finished=1, continued=0)
        assert b.counts["requests"] == 0


async def test_a_request_that_has_not_begun_starts_again_elsewhere_unseen() -> None:
    async def silent(connection: Connection) -> None:
        await connection.until_client_leaves()

    async with (
        ScriptedEngine(silent) as a,
        StubEngine() as b,
        stand() as s,
        asyncio.TaskGroup() as tasks,
    ):
        await s.publish(a.endpoint("a"))

        async def ask() -> int:
            async with s.post(max_tokens=3) as answer:
                await answer.read()
                return int(answer.status)

        asking = tasks.create_task(ask())
        await eventually(lambda: a.connections, "the replica has it")
        await s.publish(going(a, "a", LAST + 0.2), b.endpoint("b"))
        assert await asking == 200
        await a.connections[0].left.wait()
        await moved(s, restarted=1, continued=0, lost=0)


async def test_with_no_place_elsewhere_it_stays_to_the_last_and_then_waits_for_one() -> None:
    async with streaming(200) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 0.3), continues=True)
        left = await eventually(
            lambda: next((e for e in s.logs if "leaves" in e["event"]), None), "it leaves"
        )
        assert left["log_level"] == "info"
        await s.publish(b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 200), seams=1)


async def test_one_that_cannot_go_on_elsewhere_stays_for_as_long_as_its_replica_does() -> None:
    async with streaming(60, presence_penalty=1.0) as (s, a, b, stream):
        await s.publish(going(a, "a", 0.0), b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 60), seams=0)
        assert b.counts["requests"] == 0


async def test_a_drain_that_is_taken_back_moves_nothing() -> None:
    async with streaming(100) as (s, a, b, stream):
        await s.publish(going(a, "a", LAST + 1.0), b.endpoint("b"), continues=True)
        await s.publish(a.endpoint("a"), b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 100), seams=0)


async def test_one_that_serves_until_it_is_replaced_keeps_its_requests_meanwhile() -> None:
    async with streaming(60) as (s, a, b, stream):
        serving_on = a.endpoint("a", cut_at=time.time() + LAST)
        await s.publish(serving_on, b.endpoint("b"), continues=True)
        check_whole(await stream, expected(CONTEXT, 60), seams=0)
        await moved(s, finished=1, continued=0)


async def test_a_stream_that_cannot_be_saved_counts_as_lost_and_totals_are_told() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=5) as a,
        StubEngine() as b,
        continuing(a.endpoint("a")) as s,
    ):
        async with s.post(stream=True, max_tokens=20, presence_penalty=1.0) as answer:
            events = events_of(await answer.read())
        assert error_of(events[-1])["code"] == "replica_lost"
        assert text_of(events[:-1]) == expected(CONTEXT, 5)
        await moved(s, lost=1, continued=0)
        await s.publish(b.endpoint("b"))
        async with s.post(max_tokens=2) as answer:
            assert answer.status == 200
        want = {"model": "m", "answered": 1, "lost": 1, "finished": 0}

        def tells(report: dict[str, Any]) -> bool:
            return any(want.items() <= totals.items() for totals in report["totals"])

        await s.report(tells, "the totals are told")


async def test_a_new_life_of_the_controller_is_told_everything_again() -> None:
    async with streaming(40) as (s, a, b, stream):
        await s.publish(going(a, "a", 60.0), b.endpoint("b"), continues=True)
        await stream
        await moved(s, finished=1)
        await s.report(lambda r: not r["moved"], "it is not told twice")
        s.controller.reports.clear()
        await s.publish(b.endpoint("b"), epoch=2)
        await moved(s, finished=1)


async def test_only_answers_that_are_none_of_an_error_count_as_answered() -> None:
    async def refuse(connection: Connection) -> None:
        await connection.json("400 Bad Request", {"error": {"message": "too long", "code": 400}})

    async def fail(connection: Connection) -> None:
        await connection.json("500 Internal Server Error", {"error": {"message": "x", "code": 500}})

    for script, status in ((refuse, 400), (fail, 500)):
        async with ScriptedEngine(script) as bad, StubEngine() as good, stand() as s:
            await s.publish(bad.endpoint("a"))
            async with s.post(max_tokens=2) as answer:
                assert answer.status == status
            await s.publish(good.endpoint("b"))
            async with s.post(max_tokens=2) as answer:
                assert answer.status == 200

            def tells(report: dict[str, Any]) -> bool:
                return any(totals["answered"] == 1 for totals in report["totals"])

            await s.report(tells, "one is told")
