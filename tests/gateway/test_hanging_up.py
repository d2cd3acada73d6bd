"""Promises about clients that go: the engine hears it at once, and nobody is blamed."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.gateway.harness import Connection, ScriptedEngine, Stand, StubEngine, eventually, stand
from tests.gateway.raw import RawClient, connected

STREAM = {"model": "m", "messages": [], "stream": True, "max_tokens": 100_000}
UNSTREAMED = {"model": "m", "messages": []}


async def all_is_quiet(s: Stand) -> None:
    """The gauges are back at zero as the controller hears them, and nobody was blamed."""
    seen = len(s.controller.reports)

    def quiet() -> bool:
        return any(
            (r["models"][0]["queued"], r["models"][0]["in_flight"]) == (0, 0)
            and not any(load["in_flight"] for load in r["loads"])
            for r in s.controller.reports[seen:]
        )

    await eventually(quiet, "queue and requests in flight are zero again")
    assert not any(r["broken"] for r in s.controller.reports)
    assert {e["log_level"] for e in s.logs} <= {"info"}


def said(s: Stand, event: str) -> list[Any]:
    return [e for e in s.logs if e["event"] == event]


async def test_fifty_clients_that_reset_their_streams_free_every_slot() -> None:
    async def tokens(c: Connection) -> None:
        await c.head()
        for _ in range(3):
            await c.chunk(b"data: {}\n\n")
        await c.until_client_leaves()

    async with stand() as s, ScriptedEngine(tokens) as engine, AsyncExitStack() as stack:
        await s.publish(engine.endpoint(slots=50))
        clients = [await stack.enter_async_context(connected(s.gateway.port)) for _ in range(50)]

        async def reads_three_events(client: RawClient) -> None:
            await client.post(STREAM)
            for _ in range(3):
                await client.until(b"data: {}\n\n")

        await asyncio.gather(*(reads_three_events(c) for c in clients))
        for client in clients:
            client.reset()
        await eventually(
            lambda: sum(c.left.is_set() for c in engine.connections) == 50,
            "the engine saw all of them leave",
        )
        await eventually(lambda: len(said(s, "client disconnected")) == 50, "each one is told")
        await all_is_quiet(s)
        engine.script = answers
        async with s.post() as answer:
            assert answer.status == 200


async def answers(c: Connection) -> None:
    await c.json("200 OK", {})


async def says_nothing(c: Connection) -> None:
    await c.until_client_leaves()


async def half_an_answer(c: Connection) -> None:
    await c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10)
    await c.until_client_leaves()


async def head_of_a_stream(c: Connection) -> None:
    await c.head()
    await c.until_client_leaves()


@pytest.mark.parametrize("leave", ["reset", "close"])
@pytest.mark.parametrize(
    ("body", "script"),
    [
        (UNSTREAMED, says_nothing),
        (UNSTREAMED, half_an_answer),
        (STREAM, says_nothing),
        (STREAM, head_of_a_stream),
    ],
)
async def test_a_client_that_leaves_before_its_first_byte_is_heard_at_the_engine(
    body: Any, script: Any, leave: str
) -> None:
    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.post(body)
            await eventually(lambda: engine.connections, "the engine has the request")
            if leave == "reset":
                client.reset()
            else:
                client.writer.close()
            await eventually(engine.connections[0].left.is_set, "the engine saw it leave")
        await eventually(lambda: said(s, "client disconnected"), "it is told as what it is")
        await all_is_quiet(s)


async def test_a_client_that_leaves_the_queue_never_reaches_an_engine() -> None:
    async with stand() as s, ScriptedEngine(answers) as engine:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.post(STREAM)
            await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
            client.reset()
            await eventually(lambda: said(s, "client disconnected"), "the gateway saw it leave")
        await s.publish(engine.endpoint())
        await all_is_quiet(s)
        assert engine.connections == []


async def test_a_client_that_leaves_a_commented_stream_leaves_the_queue() -> None:
    async with stand(comment_interval=0.01) as s:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.post(STREAM)
            await client.until(b": waiting for a replica\n\n")
            client.reset()
            await eventually(lambda: said(s, "client disconnected"), "the gateway saw it leave")
        await all_is_quiet(s)


async def test_a_client_that_leaves_without_having_read_is_heard_at_the_engine() -> None:
    """Its window is full and the gateway waits to write: nobody reads, nobody writes."""
    piece = b"data: " + b"x" * 65_536 + b"\n\n"
    sent = 0

    async def floods(c: Connection) -> None:
        nonlocal sent
        await c.head()
        try:
            while True:
                await c.chunk(piece)
                sent += 1
        except ConnectionError:
            c.left.set()
            raise

    async with stand() as s, ScriptedEngine(floods) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            client.writer.transport.pause_reading()
            await client.post(STREAM)
            before = -1
            while before != sent or not sent:  # as long as the engine gets further, look again
                before = sent
                await asyncio.sleep(0.1)
            client.reset()
            await eventually(engine.connections[0].left.is_set, "the engine saw it leave")
        await eventually(lambda: said(s, "client disconnected"), "it is told as what it is")
        await all_is_quiet(s)


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing() -> None:
    async with stand() as s, ScriptedEngine(answers) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
            )
            client.reset()
            await eventually(lambda: said(s, "client disconnected"), "the gateway saw it leave")
        await all_is_quiet(s)
        assert engine.connections == []


async def test_a_retry_whose_client_has_left_reaches_no_other_replica() -> None:
    async def breaks(c: Connection) -> None:
        await client_left.wait()
        c.reset()

    client_left = asyncio.Event()
    async with (
        stand() as s,
        ScriptedEngine(breaks) as bad,
        ScriptedEngine(answers) as good,
        connected(s.gateway.port) as client,
    ):
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        await client.post(UNSTREAMED)
        await eventually(lambda: bad.connections, "the first replica has the request")
        client.reset()
        await eventually(lambda: said(s, "client disconnected"), "the gateway saw it leave")
        client_left.set()
        await all_is_quiet(s)
        assert good.connections == []


async def test_a_client_that_leaves_a_stub_engines_stream_aborts_its_generation() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint(slots=1))
        async with connected(s.gateway.port) as client:
            await client.post(STREAM)
            await client.until(b"data: ")
            client.reset()
            await eventually(lambda: engine.counts["aborted"] == 1, "its generation is aborted")
        await all_is_quiet(s)


async def test_a_vanished_clients_machine_is_looked_for() -> None:
    """No reset comes from a machine that lost its power: TCP must ask."""

    async with stand() as s, connected(s.gateway.port):
        connections = s.gateway._site.connections
        connection: Any = (await eventually(lambda: [*connections], "the connection is there"))[0]
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"nonsense\r\n\r\n", 400),
    ],
)
async def test_a_client_that_closes_its_half_still_gets_what_needs_no_replica(
    asked: bytes, status: int
) -> None:
    async with stand() as s:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.send(asked)
            client.writer.write_eof()
            assert (await client.answer()).status == status


@pytest.mark.parametrize("body", [UNSTREAMED, STREAM])
async def test_a_client_that_closes_its_half_frees_its_replica_as_one_that_left(body: Any) -> None:
    async with stand() as s, ScriptedEngine(says_nothing) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.post(body)
            await eventually(lambda: engine.connections, "the engine has the request")
            client.writer.write_eof()
            await eventually(engine.connections[0].left.is_set, "the engine saw it leave")
            assert await client.reader.read() == b""
        await all_is_quiet(s)


async def test_a_half_closed_client_with_half_a_request_is_not_waited_for() -> None:
    async with stand() as s:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.send(b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            client.writer.write_eof()
            async with asyncio.timeout(5):  # not the seconds for which a body is lingered for
                await client.reader.read()
