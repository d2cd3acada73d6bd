"""Promises about packed bodies and framing headers: every client can read every answer."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import zlib
from typing import Any

import openai
import pytest

from elasticd.gateway.encoding import BadPacking, Unpacker, accepts, unpack
from tests.gateway.harness import Connection, ScriptedEngine, Stand, error_of, stand
from tests.gateway.raw import connected

TEXT = "你好🙂" * 50
WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}
    ],
}
PLAIN = json.dumps(WHOLE).encode()
EVENTS = [
    *(
        f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{c}"}}}}]}}\n\n'.encode()
        for c in TEXT
    ),
    b"data: [DONE]\n\n",
]
WANTED = ["gzip", "gzip, deflate, br, zstd", "identity", "br", "*", "gzip;q=0, *;q=0", None]
HOP_BY_HOP = (
    "Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nTrailer: X-Sum\r\nUpgrade: h2c\r\n"
    "Connection: keep-alive, X-Hop\r\nConnection: X-Other-Hop\r\nX-Hop: 1\r\nX-Other-Hop: 1\r\n"
)
DROPPED = {"keep-alive", "proxy-connection", "trailer", "upgrade", "x-hop", "x-other-hop"}


async def packs_always(c: Connection) -> None:
    """An engine that packs whatever it is asked: JSON with its length, events in chunks."""
    if not json.loads(c.request.body).get("stream"):
        packed = gzip.compress(PLAIN)
        await c.send(
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
            f"{HOP_BY_HOP}Content-Length: {len(packed)}\r\n\r\n".encode()
            + packed
        )
        return
    await c.send(
        f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
        f"{HOP_BY_HOP}Transfer-Encoding: chunked\r\n\r\n".encode()
    )
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    for event in EVENTS:
        await c.chunk(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH))
    await c.chunk(packer.flush())
    await c.end()


def plain_client(s: Stand, wanted: str | None, stream: bool) -> tuple[Any, bytes]:
    """The standard library's client, which unpacks nothing by itself."""
    connection = http.client.HTTPConnection("127.0.0.1", s.gateway.port, timeout=10)
    connection.putrequest("POST", "/v1/chat/completions", skip_accept_encoding=True)
    body = json.dumps({"model": "m", "messages": [], "stream": stream}).encode()
    connection.putheader("Content-Length", str(len(body)))
    if wanted is not None:
        connection.putheader("Accept-Encoding", wanted)
    connection.endheaders(body)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.headers, data


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("stream", [False, True])
async def test_whatever_the_engine_packs_a_client_gets_only_what_it_asked_for(
    stream: bool, wanted: str | None
) -> None:
    async with stand() as s, ScriptedEngine(packs_always) as engine:
        await s.publish(engine.endpoint())
        headers, data = await asyncio.to_thread(plain_client, s, wanted, stream)
    names = [name.lower() for name in headers]
    assert not DROPPED & set(names)
    assert names.count("content-length") + names.count("transfer-encoding") == 1
    assert headers.get("Content-Length") in (None, str(len(data)))
    packed = not stream and wanted is not None and accepts(wanted, "gzip")
    assert (headers.get("Content-Encoding") == "gzip") is packed
    assert (gzip.decompress(data) if packed else data) == (b"".join(EVENTS) if stream else PLAIN)


@pytest.mark.parametrize("wanted", WANTED)
async def test_the_official_client_reads_packed_answers_and_streams(wanted: str | None) -> None:
    async with (
        stand() as s,
        ScriptedEngine(packs_always) as engine,
        openai.AsyncOpenAI(
            base_url=s.url + "/v1",
            api_key="any",
            max_retries=0,
            default_headers={} if wanted is None else {"Accept-Encoding": wanted},
        ) as client,
    ):
        await s.publish(engine.endpoint())
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        whole = await client.chat.completions.create(**ask)
        assert whole.choices[0].message.content == TEXT
        stream = await client.chat.completions.create(**ask, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == TEXT


async def test_engines_are_asked_for_plain_streams() -> None:
    """Of a packed one we could not see where events end without unpacking it."""
    async with stand() as s, ScriptedEngine(packs_always) as engine:
        await s.publish(engine.endpoint())
        for stream in (True, False):
            await asyncio.to_thread(plain_client, s, "gzip", stream)
        asked = [c.request.headers["accept-encoding"] for c in engine.connections]
        assert asked == ["identity", "gzip"]


async def test_packed_events_arrive_one_by_one() -> None:
    arrived = asyncio.Semaphore(0)

    async def script(c: Connection) -> None:
        await c.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        for event in EVENTS[:5]:
            for byte in packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH):
                await c.chunk(bytes((byte,)))
            await arrived.acquire()
        await c.chunk(packer.flush())
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer, asyncio.timeout(10):
            for event in EVENTS[:5]:
                assert await answer.content.readexactly(len(event)) == event
                arrived.release()
            assert await answer.read() == b""


async def test_a_packed_stream_that_breaks_ends_with_an_error_event() -> None:
    async def script(c: Connection) -> None:
        await c.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        await c.chunk(packer.compress(EVENTS[0]) + packer.flush(zlib.Z_SYNC_FLUSH))
        await first_arrived.wait()
        c.reset()

    first_arrived = asyncio.Event()
    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            assert await answer.content.readuntil(b"\n\n") == EVENTS[0]
            first_arrived.set()
            rest = await answer.read()
        assert error_of(rest.removeprefix(b"data: "))["code"] == "replica_lost"


async def test_a_packing_that_we_do_not_know_passes_with_its_name() -> None:
    async def script(c: Connection) -> None:
        await c.send(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n\x8b\x02\x80"
        )

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        headers, data = await asyncio.to_thread(plain_client, s, "br", False)
        assert (headers["Content-Encoding"], data) == ("br", b"\x8b\x02\x80")


async def test_an_answer_that_is_not_packed_as_it_says_is_asked_for_elsewhere() -> None:
    async def lies(c: Connection) -> None:
        await c.send(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\nno gzip"
        )

    async with (
        stand() as s,
        ScriptedEngine(lies) as bad,
        ScriptedEngine(packs_always) as good,
    ):
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        headers, data = await asyncio.to_thread(plain_client, s, None, False)
        assert (headers["X-Elasticd-Replica"], data) == ("b", PLAIN)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "raw deflate", "identity", None])
async def test_a_request_packed_in_any_way_we_know_reaches_the_engine_plain(
    coding: str | None,
) -> None:
    body = json.dumps({"model": "m", "text": TEXT}).encode()
    packed = {
        "gzip": gzip.compress(body[:50]) + gzip.compress(body[50:]),
        "x-gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw deflate": zlib.compress(body)[2:-4],
    }.get(coding or "", body)

    async def echo(c: Connection) -> None:
        await c.json("200 OK", {})

    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            named = [f"Content-Encoding: {coding.removeprefix('raw ')}"] if coding else []
            head = ["POST /v1/completions HTTP/1.1", "Host: x", "Connection: close", *named]
            head.append(f"Content-Length: {len(packed)}")
            await client.send("\r\n".join(head).encode() + b"\r\n\r\n" + packed)
            assert (await client.answer()).status == 200
        (received,) = (c.request for c in engine.connections)
        assert received.body == body
        assert received.headers["content-length"] == str(len(body))
        assert "content-encoding" not in received.headers


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "nonsense"])
async def test_a_request_packed_in_a_way_we_do_not_know_is_415_and_says_what_we_know(
    coding: str,
) -> None:
    async with stand() as s:
        await s.publish()
        headers = {"Content-Encoding": coding}
        url = s.url + "/v1/completions"
        async with s.client.post(
            url, data=b"abc", headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            assert answer.status == 415
            error = error_of(await answer.read())
        assert error["code"] == "unsupported_encoding"
        assert "gzip" in error["message"]


async def test_a_small_body_that_unpacks_to_a_huge_one_is_413() -> None:
    async with stand(max_body=100_000) as s:
        await s.publish()
        bomb = gzip.compress(b'{"model": "m", "x": "' + b" " * 50_000_000 + b'"}')
        assert len(bomb) < 100_000
        headers = {"Content-Encoding": "gzip"}
        url = s.url + "/v1/completions"
        async with s.client.post(url, data=bomb, headers=headers) as answer:
            assert answer.status == 413
            assert error_of(await answer.read())["code"] == "request_too_large"


async def test_headers_of_one_connection_only_never_reach_the_engine() -> None:
    async def echo(c: Connection) -> None:
        await c.json("200 OK", {})

    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.post(
                {"model": "m"},
                "Connection: close, X-Hop",
                "Connection: X-Other-Hop",
                "X-Hop: 1",
                "X-Other-Hop: 1",
                "Keep-Alive: timeout=5",
                "Proxy-Authorization: Basic c2VjcmV0",
                "TE: trailers",
                "X-Kept: 1",
            )
            assert (await client.answer()).status == 200
        (received,) = (c.request for c in engine.connections)
        assert not (DROPPED | {"te", "proxy-authorization"}) & set(received.headers)
        assert received.headers["x-kept"] == "1"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_a_body_is_one_also_for_the_client(status: str) -> None:
    async def script(c: Connection) -> None:
        await c.send(f"HTTP/1.1 {status}\r\nX-Kept: 1\r\n\r\n".encode())

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert answer.status == int(status[:3])
            assert answer.headers["X-Kept"] == "1"
            assert await answer.read() == b""


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("br, deflate", False),
        ("gzip", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("x-gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, *", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=nonsense", False),
    ],
)
def test_what_accept_encoding_allows(header: str | None, read: bool) -> None:
    assert accepts(header, "gzip") is read


def test_a_body_that_ends_in_the_middle_is_told() -> None:
    with pytest.raises(BadPacking):
        unpack(gzip.compress(PLAIN)[:-9], 10**6)


def test_unpacking_stops_soon_after_the_limit() -> None:
    assert 1000 < len(Unpacker().feed(gzip.compress(b"x" * 10**6), 1000)) < 2000
