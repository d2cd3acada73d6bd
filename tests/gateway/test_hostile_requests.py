"""Promises towards clients that write what no client library writes."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.harness import Connection, ScriptedEngine, Stand, error_of, events_of, stand

BODY = b'{"model": "m"}'

NOT_PLAIN = [
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1/%2E./metrics",
    "/v1/%252e%252e/metrics",
    "/v1/%25252e%25252e/metrics",
    "/v1/%2525252e%2525252e/metrics",
    "/v1/%25%32%65%25%32%65/metrics",
    "/v1/..%2fmetrics",
    "/v1/..%252fmetrics",
    "/v1/..\\metrics",
    "/v1/..%5cmetrics",
    "/v1/x%5C%2e.%5cmetrics",
    "/v1/./x",
    "/v1/%2e/x",
    "/v1//..//x",
    "/v1/..",
    "/v1/x/..?a=b",
    "/v1/models/../../metrics",
    "http://elsewhere/v1/../metrics",
]


async def echo(c: Connection) -> None:
    await c.json("200 OK", {"ok": True})


async def raw(s: Stand, target: str, method: str = "POST") -> tuple[int, str, bytes]:
    """Status, head in lower case and body of a request whose target is sent as it stands."""
    reader, writer = await asyncio.open_connection("127.0.0.1", s.gateway.port)
    try:
        writer.write(
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Length: {len(BODY)}\r\n\r\n".encode()
            + BODY
        )
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.decode().lower(), body


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_with_dot_segments_however_written_never_reaches_an_engine(
    method: str,
) -> None:
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint(key="engine-key"))
        for target in NOT_PLAIN:
            status, head, body = await raw(s, target, method)
            assert (status, error_of(body)["code"]) == (404, "not_found"), target
            assert "x-request-id: " in head
        assert engine.connections == []


async def test_dots_and_escapes_that_are_no_segment_pass_unchanged() -> None:
    targets = ["/v1/a..b/.well%2dknown/v1.0", "/v1/x%20y/100%25?path=../..", "/v1/..."]
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        for target in targets:
            assert (await raw(s, target))[0] == 200
        assert [c.request.target for c in engine.connections] == targets


@pytest.mark.parametrize("body", [b'{"model": "\\ud800"}', b'{"model": "\\udc41", "stream": true}'])
async def test_a_model_name_that_no_encoding_can_write_is_an_unknown_model(body: bytes) -> None:
    async with stand() as s:
        await s.publish()
        async with s.client.post(s.url + "/v1/chat/completions", data=body) as answer:
            assert answer.status == 404
            assert answer.headers["X-Request-Id"]
            error = error_of(await answer.read())
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "`\\ud" in error["message"]
        (told,) = (e for e in s.logs if e["event"] == "request failed")
        assert told["error"].encode() == error["message"].encode()


async def test_an_engines_late_error_with_half_a_surrogate_pair_reaches_the_stream() -> None:
    """After SSE comments an error becomes an event; its JSON is written anew."""
    commented = asyncio.Event()

    async def script(c: Connection) -> None:
        await commented.wait()
        await c.json("400 Bad Request", {"error": {"message": "\ud800 猫"}})

    async with stand(comment_interval=0.01) as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer, asyncio.timeout(10):
            comment = await answer.content.readuntil(b"\n\n")
            commented.set()
            (event,) = events_of(comment + await answer.read())
        assert json.loads(event) == {"error": {"message": "\ud800 猫"}}


async def test_of_a_huge_model_name_or_path_only_the_start_is_repeated() -> None:
    async with stand() as s:
        await s.publish()
        body = {"model": "x" * 1_000_000}
        async with s.client.post(s.url + "/v1/completions", json=body) as answer:
            assert answer.status == 404
            assert len(await answer.read()) < 1000
        _, _, told = await raw(s, "/nope/" + "y" * 10_000)
        assert len(told) < 1000
        assert all(len(repr(e)) < 2000 for e in s.logs)
