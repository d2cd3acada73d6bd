"""Promises about streams that fall silent: moved early, and only if the silence is their replica's.

The rules first, in virtual time; then over real sockets.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from elasticd.gateway.failures import ReplicaSilent
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.http.head import address_of, request_bytes
from elasticd.gateway.http.pool import Pool
from elasticd.gateway.stall import Pulse
from elasticd.gateway.suspicion import APART, FACTOR, PROMPT_PACE, Suspects, Suspicion, is_silent
from tests.bench.stub_engine import chat_context, expected
from tests.gateway.harness import Connection, ScriptedEngine, Stand, StubEngine, eventually
from tests.gateway.test_continuation import CONTEXT, check_whole, continuing, told

NOW = 1000.0
FLOOR = 5.0


def pulse_of(*, pace: float = 0.02, silent: float = 0.0, streams: int = 3) -> Pulse:
    """A replica that has been silent to everybody for so many seconds at `NOW`."""
    return Pulse(heard=NOW - silent, longest=pace, streams=streams)


def suspicion(pulse: Pulse, *, may_move: bool = True) -> Suspicion:
    return Suspicion(pulse, FLOOR, lambda _: may_move)


def test_a_stream_that_is_silent_while_others_get_tokens_is_moved_alone() -> None:
    found = suspicion(pulse_of()).judged(FLOOR, NOW)
    assert isinstance(found, ReplicaSilent)
    assert not found.everywhere


def test_a_replica_that_tells_none_of_its_streams_anything_is_found_out() -> None:
    """The last token of each came in one step, some milliseconds apart."""
    found = suspicion(pulse_of(silent=FLOOR - 0.05)).judged(FLOOR, NOW)
    assert found is not None
    assert found.everywhere


def test_a_short_silence_is_none() -> None:
    assert suspicion(pulse_of(silent=4.9)).judged(4.9, NOW) is None


def test_a_replica_with_long_gaps_gets_its_time() -> None:
    doubt = suspicion(pulse_of(pace=3.0, silent=14.0))
    assert doubt.judged(FACTOR * 3.0 - 0.1, NOW) is None
    assert doubt.judged(FACTOR * 3.0, NOW) is not None


def test_a_replica_of_which_nothing_is_known_is_no_suspect() -> None:
    doubt = suspicion(pulse_of(pace=0.0, silent=100.0))
    assert doubt.judged(100.0, NOW) is None
    assert doubt.next_look(100.0, NOW) > 0


def test_a_long_prompt_excuses_the_silence_of_all() -> None:
    pulse = pulse_of(silent=20.0)
    pulse.asked["a long one"] = (NOW - 20.5, int(30 * PROMPT_PACE))
    assert suspicion(pulse).judged(20.0, NOW) is None
    pulse.heard = NOW - 36.0
    pulse.asked["a long one"] = (NOW - 36.5, int(30 * PROMPT_PACE))
    assert suspicion(pulse).judged(36.0, NOW) is not None, "but not for ever"


@pytest.mark.parametrize(
    ("age", "size"),
    [(3.0, 10**6), (20.0, 500)],
    ids=["it came after the silence had begun", "it is short"],
)
def test_requests_that_cannot_be_the_reason_excuse_nothing(age: float, size: int) -> None:
    """A stuck engine collects requests without an answer: they must not hide it."""
    pulse = pulse_of(silent=20.0)
    pulse.asked["another"] = (NOW - age, size)
    assert suspicion(pulse).judged(20.0, NOW) is not None


def test_a_long_prompt_excuses_nothing_while_others_get_tokens() -> None:
    pulse = pulse_of()
    pulse.asked["a long one"] = (NOW - 20.0, 10**6)
    assert suspicion(pulse).judged(20.0, NOW) is not None


def test_where_nobody_could_go_on_nothing_is_moved() -> None:
    assert suspicion(pulse_of(silent=60.0), may_move=False).judged(60.0, NOW) is None


def test_an_idle_replica_is_not_a_silent_one() -> None:
    assert not is_silent(pulse_of(silent=1000.0, streams=0), FLOOR, NOW)
    assert is_silent(pulse_of(silent=1000.0, streams=1), FLOOR, NOW)


def test_a_pace_is_remembered_over_a_quiet_time_and_forgotten_over_a_busy_one() -> None:
    pulse = Pulse(longest=2.0)
    assert pulse.pace(1e6) == 2.0
    pulse.longest = 0.02
    assert pulse.pace(1e6 + 10) == 2.0
    assert pulse.pace(1e6 + 40) == 0.02


def test_one_replica_of_a_model_is_ejected_on_suspicion_and_no_second_one() -> None:
    """A slow moment of the whole host must not take all of them away."""
    suspects = Suspects()
    assert suspects.may_eject("m", "a", NOW)
    assert not suspects.may_eject("m", "b", NOW + 1.0)
    assert suspects.may_eject("m", "a", NOW + 2.0), "the same one, again"
    assert suspects.may_eject("other", "c", NOW + 2.0)
    assert suspects.may_eject("m", "b", NOW + 2.0 + APART)


# -- over real sockets ---------------------------------------------------------------------------


def silences(s: Stand) -> list[str]:
    return [e["error"] for e in s.logs if e["event"] == "stream broken"]


def broken(s: Stand) -> set[str]:
    return {b["replica_id"] for r in s.controller.reports for b in r["broken"]}


HANGS = {"itl_ms": 2, "fault": "hang", "fault_after": 6}


async def test_one_stuck_stream_is_moved_and_its_replica_stays_in_rotation() -> None:
    async with (
        StubEngine(**HANGS) as sticky,
        StubEngine(itl_ms=2) as other,
        continuing(sticky.endpoint("a", slots=9), stall_after=1.0) as s,
    ):
        stuck = asyncio.ensure_future(told(s, max_tokens=20))
        await eventually(lambda: sticky.counts["tokens"] >= 6, "it hangs")
        sticky.set(fault="")
        async with s.post(stream=True, max_tokens=100_000) as flowing:
            await s.publish(sticky.endpoint("a", slots=9), other.endpoint("b"), continues=True)
            check_whole(await stuck, expected(CONTEXT, 20), seams=1)
            flowing.close()
        (error,) = silences(s)
        assert "all its streams" not in error
        seen = len(s.controller.reports)
        await eventually(lambda: len(s.controller.reports) > seen + 1, "what there is was told")
        assert not broken(s)


async def test_a_stuck_replica_loses_all_its_streams_to_others_and_is_reported() -> None:
    async with (
        StubEngine(itl_ms=2) as freezing,
        StubEngine(itl_ms=2) as other,
        continuing(freezing.endpoint("a", slots=9), stall_after=1.0) as s,
    ):
        bodies = [asyncio.ensure_future(told(s, max_tokens=200)) for _ in range(3)]
        await eventually(lambda: freezing.counts["tokens"] > 30, "all are under way")
        freezing.set(itl_ms=1e6)
        fleet = freezing.endpoint("a", slots=9), other.endpoint("b", slots=9)
        await s.publish(*fleet, continues=True)
        for body in bodies:
            check_whole(await body, expected(CONTEXT, 200), seams=1)
        report = await s.report(lambda r: bool(r["broken"]), "the controller hears of it")
        assert [b["replica_id"] for b in report["broken"]] == ["a"]
        assert "all its streams" in report["broken"][0]["message"]


@pytest.mark.parametrize("count", [1, 2])
async def test_while_no_other_replica_lives_a_silent_stream_stays(count: int) -> None:
    """Of two that are silent at once none is the better place."""
    engines = [StubEngine(**HANGS) for _ in range(2)]
    async with engines[0], engines[1]:
        fleet = [e.endpoint(n, slots=1) for n, e in zip("ab", engines[:count], strict=False)]
        async with continuing(*fleet, stall_after=0.05, idle_timeout=0.6) as s:
            told_all = [asyncio.ensure_future(told(s, max_tokens=9)) for _ in range(count)]
            await eventually(lambda: len(silences(s)) >= count, "their time is over")
            assert {e.split(" to ")[0] for e in silences(s)[:count]} == {"silent for 0.6 s"}
            await asyncio.gather(*told_all)


async def test_a_stream_that_cannot_go_on_elsewhere_may_be_silent_up_to_its_limit() -> None:
    """To end it early would lose what may only be slow."""
    messages = [{"role": "user", "content": "slow"}]
    async with (
        StubEngine(itl_ms=2) as slow,
        StubEngine() as other,
        continuing(slow.endpoint("a"), other.endpoint("b"), stall_after=0.05) as s,
    ):
        fields: dict[str, Any] = {"max_tokens": 40, "presence_penalty": 0.5, "messages": messages}
        stream = asyncio.ensure_future(told(s, **fields))
        await eventually(lambda: slow.counts["tokens"] > 10, "it is under way")
        slow.set(itl_ms=400)
        asyncio.get_running_loop().call_later(0.1, lambda: slow.set(itl_ms=2))
        check_whole(await stream, expected(chat_context(messages), 40), seams=0)


async def piped(
    script: Any, meanwhile: Any = None, **limits: Any
) -> tuple[bytes, Exception | None, ScriptedEngine]:
    """What a sink gets from the engine, and how it ended."""
    got, error = bytearray(), None
    async with ScriptedEngine(script) as engine:
        pool, address = Pool(5.0), address_of(engine.endpoint().url)
        ask = request_bytes("GET", address, "/", [], b"")
        async with Exchange(pool, address, "GET", ask, None, Pulse()) as exchange:
            await exchange.open()
            got += await exchange.read()
            exchange.limit_silence(**limits)
            if meanwhile is not None:
                meanwhile(exchange)
            try:
                await exchange.pump(got.extend)  # type: ignore[arg-type]
            except ReplicaSilent as silent:
                error = silent
        if error is not None:
            async with asyncio.timeout(10):
                await engine.connections[0].left.wait()
        pool.close()
    return bytes(got), error, engine


async def test_late_bytes_of_a_replica_that_was_left_reach_nobody() -> None:
    async def speaks_too_late(c: Connection) -> None:
        await c.head()
        await c.chunk(b"early")
        await c.until_client_leaves()
        await c.chunk(b"late")

    got, error, _ = await piped(speaks_too_late, seconds=0.1)
    assert isinstance(error, ReplicaSilent)
    assert got == b"early"


async def test_while_its_client_is_slow_a_replica_is_not_silent() -> None:
    """It is us who do not read."""
    loop = asyncio.get_running_loop()
    resumed = asyncio.Event()

    async def speaks_when_read(c: Connection) -> None:
        await c.head()
        await c.chunk(b"one ")
        await resumed.wait()
        await c.chunk(b"two")
        await c.end()

    def hold(exchange: Exchange) -> None:
        exchange.pause()
        loop.call_later(0.3, exchange.resume)
        loop.call_later(0.3, resumed.set)

    pulse = Pulse(longest=0.01)
    doubt = Suspicion(pulse, 0.05, lambda _: True)
    got, error, _ = await piped(speaks_when_read, hold, seconds=0.15, suspicion=doubt)
    assert error is None
    assert got == b"one two"


async def test_a_sleep_of_our_own_is_no_silence_of_a_replica() -> None:
    """What came meanwhile is not read yet when the look at the silence comes late."""
    loop = asyncio.get_running_loop()

    async def speaks(c: Connection) -> None:
        await c.head()
        await c.chunk(b"one ")
        await woken.wait()
        await c.chunk(b"two")
        await c.end()
        await c.until_client_leaves()

    def sleep() -> None:
        time.sleep(0.9)
        loop.call_soon(loop.call_soon, woken.set)

    woken = asyncio.Event()
    got, error, _ = await piped(speaks, lambda _: loop.call_later(0.1, sleep), seconds=0.5)
    assert error is None
    assert got == b"one two"
