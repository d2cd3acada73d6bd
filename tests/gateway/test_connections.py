"""Promises of connections on both sides: kept, shared in order, and never mixed up."""

from __future__ import annotations

import asyncio
import json

import pytest

from elasticd.gateway.failures import ReplicaLost
from elasticd.gateway.http import pool
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.http.head import address_of, request_bytes
from elasticd.gateway.http.pool import Pool
from elasticd.gateway.stall import Pulse
from tests.gateway.harness import Connection, ScriptedEngine, StubEngine, error_of, stand
from tests.gateway.raw import RawClient, connected, request

MODELS = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(c: Connection) -> None:
    await c.json("200 OK", {"body": c.request.body.decode()})


async def one_answer(client: RawClient) -> tuple[bytes, bytes]:
    """Head and body of the next answer on a connection that is kept."""
    head = await client.until(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(int(x.split(":")[1]) for x in lines if x.startswith("content-length:"))
    return head, await client.reader.readexactly(length)


async def test_requests_sent_in_one_go_are_answered_in_their_order() -> None:
    """The first one takes longer than those that the gateway answers itself."""

    async def slow(c: Connection) -> None:
        await asyncio.sleep(0.05)
        await echo(c)

    async with stand() as s, ScriptedEngine(slow) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            ask = request({"model": "m", "n": 1}) + MODELS + request({"model": "m", "n": 2})
            await client.send(ask + b"nonsense\r\n\r\n")
            _, first = await one_answer(client)
            _, models = await one_answer(client)
            _, third = await one_answer(client)
            assert [json.loads(json.loads(b)["body"])["n"] for b in (first, third)] == [1, 2]
            assert json.loads(models)["object"] == "list"
            assert (await client.answer()).status == 400, "in its place, and the last one"


async def test_a_connection_is_used_again_after_a_stream_to_its_end() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            for _ in range(3):
                await client.post({"model": "m", "messages": [], "stream": True, "max_tokens": 2})
                assert (await client.until(b"0\r\n\r\n")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert engine.counts["connections"] == 1, "the one to the replica, too"


@pytest.mark.parametrize("body", [b'{"model": "m"}', b""])
async def test_a_client_that_would_rather_speak_another_protocol_is_answered_in_this_one(
    body: bytes,
) -> None:
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            method = b"POST /v1/completions" if body else b"GET /v1/models"
            head = b"%b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" % method
            length = b"Content-Length: %d\r\n" % len(body) if body else b""
            for _ in range(2):
                await client.send(head + length + b"\r\n" + body + MODELS)
                assert (await one_answer(client))[0].startswith(b"HTTP/1.1 200 ")
                assert b'"list"' in (await one_answer(client))[1]
        assert [c.request.body for c in engine.connections] == ([body] * 2 if body else [])


async def test_an_old_client_gets_the_end_of_the_connection_as_the_end_of_its_stream() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            body = b'{"model": "m", "messages": [], "stream": true, "max_tokens": 2}'
            head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
            await client.send(head + body)
            answer = await client.answer()
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_an_old_client_keeps_its_connection_if_it_asks_for_it() -> None:
    async with stand() as s, connected(s.gateway.port) as client:
        await s.publish()
        for _ in range(2):
            await client.send(b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"connection: keep-alive" in (await one_answer(client))[0].lower()


async def test_an_answer_before_the_body_has_come_is_read_and_ends_the_connection() -> None:
    """Who is refused goes on sending for a while; to close at once would take the answer away."""
    async with stand(max_body=1000) as s, connected(s.gateway.port) as client:
        await s.publish()
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n"
        )
        await client.send(b"\r\n" + b"x" * 100_000)
        head, body = await one_answer(client)
        assert head.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in head
        assert error_of(body)["code"] == "request_too_large"
        assert await client.reader.read() == b""


@pytest.mark.parametrize("flood", [b"1;x=%b\r\n" % (b"x" * 70_000), b"0\r\nX: " + b"x" * 70_000])
async def test_framing_without_a_body_in_it_is_bounded(flood: bytes) -> None:
    async with stand() as s, connected(s.gateway.port) as client:
        await s.publish()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head)
        for at in range(0, len(flood), 10_000):
            await client.send(flood[at : at + 10_000])
        await client.send(b"x" * 1_000_000)
        assert (await one_answer(client))[0].startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("lines", [b"X: %b\r\n" % (b"x" * 20_000), b"X: x\r\n" * 200])
async def test_a_head_right_behind_another_request_has_the_same_bounds(lines: bytes) -> None:
    async with stand() as s, connected(s.gateway.port) as client:
        await s.publish()
        get = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n%b\r\n"
        await client.send(get % b"" + get % lines)
        assert (await one_answer(client))[0].startswith(b"HTTP/1.1 200 ")
        assert (await one_answer(client))[0].startswith(b"HTTP/1.1 431 ")


async def test_a_head_that_does_not_end_is_bounded() -> None:
    async with stand() as s, connected(s.gateway.port) as client:
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: ")
        for _ in range(20):
            await client.send(b"x" * 10_000)
        assert (await one_answer(client))[0].startswith(b"HTTP/1.1 431 ")


async def test_what_comes_behind_a_trailer_is_the_next_request() -> None:
    async with stand() as s, ScriptedEngine(echo) as engine, connected(s.gateway.port) as client:
        await s.publish(engine.endpoint())
        chunks = b'e\r\n{"model": "m"}\r\n0\r\nAuthorization: Bearer other\r\n\r\n'
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + chunks + MODELS)
        assert b'\\"model\\"' in (await one_answer(client))[1]
        assert b'"list"' in (await one_answer(client))[1]
        assert engine.connections[0].request.headers["authorization"] == "Bearer key"


async def test_an_idle_connection_to_a_replica_is_closed_before_the_replica_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "KEPT", 0.05)
    left = asyncio.Event()

    async def keeps(c: Connection) -> None:
        await echo(c)
        await c.until_client_leaves()
        left.set()

    async with stand() as s, ScriptedEngine(keeps) as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert answer.status == 200
        await asyncio.wait_for(left.wait(), 10)


async def test_a_connection_that_its_replica_has_closed_is_not_used_again() -> None:
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        for _ in range(5):
            async with s.post() as answer:
                assert answer.status == 200
        assert len(engine.connections) == 5
        assert not any(e["event"].startswith("replica failed") for e in s.logs)


@pytest.mark.parametrize(("method", "asked"), [("GET", 2), ("PUT", 2), ("POST", 1)])
async def test_what_may_be_asked_twice_is_sent_again_when_a_kept_connection_was_just_closing(
    method: str, asked: int
) -> None:
    """It is closed under the request. Anything else may have been taken: it is a loss."""
    answered = 0

    async def closes_under_the_next(c: Connection) -> None:
        nonlocal answered
        answered += 1
        await echo(c)
        if answered == 1:
            await c.reader.readuntil(b"\r\n\r\n")  # the next request, which is not answered
            c.reset()

    async with ScriptedEngine(closes_under_the_next) as engine:
        connections, address = Pool(5.0), address_of(engine.endpoint().url)
        heads = []
        for _ in range(2):
            ask = request_bytes(method, address, "/v1/models", [], b"")
            async with Exchange(connections, address, method, ask, None, Pulse()) as exchange:
                try:
                    heads.append((await exchange.open()).status)
                    while await exchange.read():
                        pass
                except ReplicaLost:
                    heads.append(0)
        connections.close()
    assert heads == [200, 200 if asked == 2 else 0]
    assert len(engine.connections) == asked


async def test_bytes_behind_an_answer_never_become_the_next_one() -> None:
    async def says_too_much(c: Connection) -> None:
        body = json.dumps({"n": len(engine.connections)}).encode()
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        await c.send(whole + whole)
        await c.until_client_leaves()

    async with stand() as s, ScriptedEngine(says_too_much) as engine:
        await s.publish(engine.endpoint())
        for n in (1, 2):
            async with s.post() as answer:
                assert json.loads(await answer.read()) == {"n": n}
