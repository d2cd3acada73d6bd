"""Promises of answers on their way: unchanged, prompt, and never cut silently."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.bench.stub_engine import chat_context, expected
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    StubEngine,
    error_of,
    events_of,
    eventually,
    stand,
)

EVENTS = ['data: {"text": "猫🐈"}\n\n', "data: {}\n\n", ": ping\n\n", "data: [DONE]\n\n"]


async def test_a_stream_arrives_byte_for_byte() -> None:
    body = "".join(EVENTS).encode()

    async def script(c: Connection) -> None:
        await c.head()
        await c.chunk(body)
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert answer.headers["X-Elasticd-Replica"] == "r1"
            assert await answer.read() == body


async def test_each_event_arrives_before_the_next_one_is_written_however_it_was_cut() -> None:
    """One byte per write; the engine goes on only after the client has the event."""
    arrived = asyncio.Semaphore(0)

    async def script(c: Connection) -> None:
        await c.head()
        for event in EVENTS:
            for byte in event.encode():
                await c.chunk(bytes((byte,)))
            await arrived.acquire()
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer, asyncio.timeout(10):
            for event in EVENTS:
                assert await answer.content.readexactly(len(event.encode())) == event.encode()
                arrived.release()
            assert await answer.read() == b""


async def test_tokens_of_many_streams_are_exact() -> None:
    async with stand() as s, StubEngine(itl_ms=1) as engine:
        await s.publish(engine.endpoint(slots=64))

        async def one(number: int) -> None:
            messages = [{"role": "user", "content": f"question {number}"}]
            async with s.post(messages=messages, stream=True, max_tokens=20) as answer:
                events = events_of(await answer.read())
            assert events[-1] == "[DONE]"
            deltas = [json.loads(e)["choices"][0]["delta"] for e in events[:-1]]
            text = "".join(d["content"] for d in deltas)
            assert text == expected(chat_context(messages), 20)

        await asyncio.gather(*(one(n) for n in range(32)))


async def test_a_client_that_leaves_a_stream_frees_the_replica_at_once() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        logs = s.logs
        await s.publish(engine.endpoint(slots=1))
        async with s.post(stream=True, max_tokens=100_000) as answer:
            await answer.content.readuntil(b"\n\n")
            answer.close()
        await eventually(lambda: engine.counts["aborted"] == 1, "the engine saw the client leave")
        assert [e["log_level"] for e in logs if e["event"] == "client disconnected"] == ["info"]
        async with s.post(max_tokens=1) as answer:
            assert answer.status == 200


async def test_a_client_that_leaves_before_the_answer_frees_the_replica_at_once() -> None:
    async with stand() as s:

        async def script(c: Connection) -> None:
            await c.until_client_leaves()

        async with ScriptedEngine(script) as engine:
            await s.publish(engine.endpoint())
            request = asyncio.ensure_future(s.post().__aenter__())
            await eventually(lambda: engine.connections, "the engine has the request")
            request.cancel()
            await eventually(lambda: engine.connections[0].left.is_set(), "the engine saw it leave")
            await s.report(
                lambda r: r["models"][0]["in_flight"] == 0 and r["models"][0]["arrivals"] == 0,
                "nothing is in flight any more",
            )


async def test_a_reader_that_is_slow_slows_the_engine_down() -> None:
    piece = b"data: " + b"x" * 65_536 + b"\n\n"
    sent = 0
    total = 2000

    async def script(c: Connection) -> None:
        nonlocal sent
        await c.head()
        for _ in range(total):
            await c.chunk(piece)
            sent += 1
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            before = -1
            while before != sent:  # as long as the engine gets further, look again
                before = sent
                await asyncio.sleep(0.1)
            assert sent < total / 2
            assert len(await answer.read()) == total * len(piece)


async def test_a_replica_lost_in_mid_stream_is_told_in_exactly_one_event() -> None:
    async with stand() as s, StubEngine(itl_ms=2, fault="rst", fault_after=5) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=50) as answer:
            assert answer.status == 200
            events = events_of(await answer.read())
        error = error_of(events[-1])
        assert error["code"] == "replica_lost"
        assert "127.0.0.1" not in error["message"], "addresses are not for clients"
        assert "[DONE]" not in events
        assert all("error" not in json.loads(e) for e in events[:-1])
        report = await s.report(lambda r: bool(r["broken"]), "the broken replica is reported")
        assert report["broken"][0]["replica_id"] == "r1"
        assert report["broken"][0]["incarnation"] == 1


@pytest.mark.parametrize("how", ["reset", "closed", "ended"])
async def test_a_stream_that_breaks_off_ends_in_one_error_and_the_log_names_both(how: str) -> None:
    """By a reset, by a close without the last chunk, or in the middle of an event."""

    async def breaks(c: Connection) -> None:
        await c.head()
        for number in range(3):
            await c.chunk(b'data: {"n": %d}\n\n' % number)
        await asyncio.wait_for(arrived.wait(), 10)
        if how == "reset":
            c.reset()
        elif how == "closed":
            c.writer.close()
        else:
            await c.chunk(b'data: {"half')
            c.writer.close()

    arrived = asyncio.Event()
    async with stand() as s, ScriptedEngine(breaks) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, headers={"X-Request-Id": "mine"}) as answer:
            first = b"".join([await answer.content.readuntil(b"\n\n") for _ in range(3)])
            arrived.set()
            *told, error = events_of(first + await answer.read())
        assert [json.loads(e)["n"] for e in told] == [0, 1, 2], "nothing twice"
        assert error_of(error)["code"] == "replica_lost"
        (lost,) = [e for e in s.logs if e["event"] == "stream broken"]
        assert (lost["request_id"], lost["replica"]) == ("mine", "r1")


async def test_half_an_event_never_reaches_the_client() -> None:
    async def script(c: Connection) -> None:
        await c.head()
        await c.chunk(b'data: {"a": 1}\n\ndata: {"half')
        await asyncio.wait_for(first_arrived.wait(), 10)
        c.reset()

    first_arrived = asyncio.Event()
    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            await answer.content.readuntil(b"\n\n")
            first_arrived.set()
            (event,) = events_of(await answer.read())
        assert error_of(event)["code"] == "replica_lost"


async def test_a_silent_stream_is_ended_with_an_error_event() -> None:
    async with (
        stand(idle_timeout=0.2) as s,
        StubEngine(fault="hang", fault_after=3, itl_ms=1) as engine,
    ):
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=50) as answer:
            events = events_of(await answer.read())
        assert error_of(events[-1])["code"] == "idle_timeout"
        await eventually(lambda: engine.counts["aborted"] == 1, "the engine saw the stream end")


async def test_a_slow_stream_is_not_a_silent_one() -> None:
    async with stand(idle_timeout=1.5) as s, StubEngine(itl_ms=100) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=20) as answer:
            assert events_of(await answer.read())[-1] == "[DONE]"


async def test_an_answer_too_large_to_hold_is_passed_on_as_it_comes() -> None:
    piece = b"y" * 1000

    async def script(c: Connection) -> None:
        await c.head("audio/mpeg")
        for _ in range(5):
            await c.chunk(piece)
        await asyncio.wait_for(started.wait(), 10)
        for _ in range(5):
            await c.chunk(piece)
        await (c.end() if whole else asyncio.sleep(0))
        if not whole:
            c.reset()

    async with stand(answer_buffer=2000) as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        for whole in (True, False):
            started = asyncio.Event()
            async with s.post("/v1/audio/speech") as answer:
                got = await answer.content.readexactly(3000)
                started.set()
                if whole:
                    assert len(got + await answer.read()) == 10_000
                else:
                    with pytest.raises(aiohttp.ClientError):
                        await answer.read()


async def test_a_streams_own_time_limit_ends_it_with_an_error_event() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        headers = {"X-Request-Timeout": "300ms"}
        async with s.post(stream=True, max_tokens=100_000, headers=headers) as answer:
            events = events_of(await answer.read())
        assert error_of(events[-1])["code"] == "request_timeout"
        await eventually(lambda: engine.counts["aborted"] == 1, "the engine saw the stream end")
