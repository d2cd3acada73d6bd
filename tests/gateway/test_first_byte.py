"""Promises about silence before the first byte: bounded, and judged by what the replica does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from elasticd.gateway.call import Call
from elasticd.gateway.continuation.terms import NotContinued
from elasticd.gateway.relay import Relay
from elasticd.gateway.stall import PASSED_OVER, Pulse, Stalled, Stalls
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    eventually,
    stand,
)
from tests.traffic.tables import endpoint, route, table


async def says_nothing(c: Connection) -> None:
    await c.until_client_leaves()


async def half_an_event(c: Connection) -> None:
    await c.head()
    await c.chunk(b"data: {")
    await c.until_client_leaves()


async def half_an_answer(c: Connection) -> None:
    await c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
    await c.until_client_leaves()


async def answered(s: Stand, **fields: Any) -> tuple[int, bytes]:
    async with s.post(**fields) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize(
    ("script", "stream"),
    [
        (says_nothing, True),
        (says_nothing, False),
        (half_an_event, True),
        (half_an_answer, False),
    ],
)
async def test_a_request_whose_replica_falls_silent_is_started_again_elsewhere(
    script: Any, stream: bool
) -> None:
    async with (
        stand(first_byte_timeout=0.2) as s,
        ScriptedEngine(script) as silent,
        StubEngine() as good,
    ):
        await s.publish(silent.endpoint("a"), good.endpoint("b"))
        status, body = await answered(s, stream=stream, max_tokens=2)
        assert status == 200
        assert (b"[DONE]" in body) is stream
        await eventually(lambda: silent.connections, "the silent one has the request, too")
        await silent.connections[0].left.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_two_silent_replicas_are_enough_and_the_answer_is_504(stream: bool) -> None:
    async with (
        stand(first_byte_timeout=0.1) as s,
        ScriptedEngine(says_nothing) as one,
        ScriptedEngine(says_nothing) as two,
        ScriptedEngine(says_nothing) as three,
    ):
        await s.publish(one.endpoint("a"), two.endpoint("b"), three.endpoint("c"))
        status, body = await answered(s, stream=stream)
        assert status == 504
        assert error_of(body)["code"] == "first_byte_timeout"
        assert three.connections == []


TICK = 0.002
"""Seconds: uvloop's time goes in milliseconds, at both ends of a wait."""

WHOLE = NotContinued("it is not streamed")


async def test_every_byte_to_anybody_is_a_sign_of_life_of_its_replica() -> None:
    relay = Relay(connect_timeout=5.0)
    body = b'{"messages": [], "max_tokens": 1}'
    headers = CIMultiDictProxy(CIMultiDict[str]())
    call = Call("r", "r", "POST", "/v1/chat/completions", headers, body, "m", False, 5, None, WHOLE)
    async with StubEngine() as engine, StubEngine() as other:
        async with (
            relay.exchange(engine.endpoint("a"), call) as talking,
            relay.exchange(engine.endpoint("a"), call) as waiting,
            relay.exchange(other.endpoint("b"), call) as elsewhere,
        ):
            assert waiting.pulse.heard == 0.0
            await talking.open()
            head_at = waiting.pulse.heard
            assert head_at > 0.0
            assert await talking.read()
            assert waiting.pulse.heard >= head_at
            assert elsewhere.pulse.heard == 0.0
        await relay.aclose()


async def test_what_waits_in_our_queue_is_not_the_engines_silence() -> None:
    async with stand(first_byte_timeout=0.05) as s, StubEngine() as engine:
        await s.publish()
        request = asyncio.ensure_future(answered(s, max_tokens=1))
        await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
        for _ in range(2):
            seen = len(s.controller.reports)
            await s.report(lambda r, n=seen: len(s.controller.reports) > n, "time passes")
        await s.publish(engine.endpoint())
        assert (await request)[0] == 200


async def test_the_clock_of_silence_runs_from_the_last_byte_to_anybody() -> None:
    loop = asyncio.get_running_loop()
    pulse = Pulse()
    began = loop.time()
    loop.call_later(0.05, lambda: setattr(pulse, "heard", loop.time()))
    with pytest.raises(Stalled), Stalls().first_byte_within(0.1, pulse):
        await asyncio.Event().wait()
    assert loop.time() - began >= 0.15 - TICK


async def test_who_is_passed_over_for_ever_is_given_up_in_the_end() -> None:
    loop = asyncio.get_running_loop()
    period = 0.05
    pulse = Pulse(heard=loop.time() + 1000.0)
    began = loop.time()
    with pytest.raises(Stalled), Stalls().first_byte_within(period, pulse):
        await asyncio.Event().wait()
    assert loop.time() - began >= PASSED_OVER * period - TICK


async def test_a_wait_that_somebody_else_cancels_is_cancelled() -> None:
    async def waits() -> None:
        with Stalls().first_byte_within(10.0, Pulse()):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_timer_gives_up_each_wait_in_its_time() -> None:
    stalls, loop = Stalls(), asyncio.get_running_loop()
    ended: list[float] = []

    async def waits(period: float) -> None:
        with pytest.raises(Stalled), stalls.first_byte_within(period, Pulse()):
            await asyncio.Event().wait()
        ended.append(period)

    began = loop.time()
    await asyncio.gather(*(waits(period) for period in (0.1, 0.3, 0.2)))
    assert ended == [0.1, 0.2, 0.3]
    assert loop.time() - began >= 0.3 - TICK
    with stalls.first_byte_within(0.01, Pulse()):
        pass
    stalls.close()


async def test_the_pace_of_a_listed_replica_outlives_its_requests() -> None:
    relay = Relay(connect_timeout=5.0)
    listed, gone = endpoint("a"), endpoint("b")
    relay.follow(table(route(listed)))
    for each in (listed, gone):
        relay.pulse(each).longest = 0.5
    assert relay.pulse(listed).longest == 0.5
    assert relay.pulse(gone).longest == 0.0
    await relay.aclose()
