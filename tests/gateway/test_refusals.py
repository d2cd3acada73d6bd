"""Promises about refusals that engines write in no shape that clients can read."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.gateway.harness import Connection, ScriptedEngine, error_of, events_of, stand

PAGE = b"<html><body>Request Header Fields Too Large</body></html>"


def answering(status: str, headers: str, body: bytes) -> ScriptedEngine:
    async def script(c: Connection) -> None:
        await c.send(
            f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )

    return ScriptedEngine(script)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "headers", "body", "told"),
    [
        (
            "400 Bad Request",
            "Content-Type: text/plain; charset=utf-8\r\n",
            b"Got more than 8190 bytes when reading: /opt/engine/http.py",
            "The engine answered with status 400: Got more than 8190 bytes when reading: …",
        ),
        (
            "431 Too Large",
            "Content-Type: text/html\r\nETag: x\r\n",
            PAGE,
            "The engine answered with status 431",
        ),
        (
            "413 Too Large",
            "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n",
            gzip.compress(b"no", mtime=0),
            "The engine answered with status 413",
        ),
        ("404 Not Found", "", b"", "The engine answered with status 404"),
        (
            "502 Bad Gateway",
            "Content-Type: text/html\r\n",
            PAGE,
            "The engine answered with status 502",
        ),
    ],
)
async def test_an_engines_refusal_that_is_no_json_has_the_shape_of_every_error(
    status: str, headers: str, body: bytes, told: str, stream: bool
) -> None:
    headers += "Retry-After: 7\r\n"
    async with stand() as s, answering(status, headers, body) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=stream) as answer:
            assert answer.status == int(status[:3])
            assert answer.headers["Content-Type"] == "application/json"
            assert not {"ETag", "Content-Encoding"} & set(answer.headers)
            assert answer.headers["Retry-After"] == "7"
            assert answer.headers["X-Elasticd-Replica"] == "r1"
            error = error_of(await answer.read())
    assert (error["code"], error["message"]) == ("engine_error", told)


@pytest.mark.parametrize("kind", ["application/json", "application/problem+json; charset=utf-8"])
async def test_an_engines_own_json_passes_unchanged(kind: str) -> None:
    body = b'{"detail":  "its own words"}'
    async with stand() as s, answering("422 X", f"Content-Type: {kind}\r\n", body) as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (422, kind)
            assert await answer.read() == body


async def test_a_page_that_comes_after_comments_is_an_error_event() -> None:
    async def late(c: Connection) -> None:
        await c.send(b"HTTP/1.1 400 X\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno")

    async with stand(comment_interval=0.01) as s, ScriptedEngine(late) as engine:
        await s.publish()
        async with s.post(stream=True) as answer:
            comment = await answer.content.readuntil(b"\n\n")
            await s.publish(engine.endpoint())
            (event,) = events_of(comment + await answer.read())
    assert json.loads(event)["error"]["message"] == "The engine answered with status 400: no"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_switches_protocols_is_a_bad_gateway(stream: bool) -> None:
    async def switches(c: Connection) -> None:
        await c.send(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        await c.until_client_leaves()

    async with stand() as s, ScriptedEngine(switches) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=stream) as answer:
            assert answer.status == 502
            assert error_of(await answer.read())["code"] == "bad_gateway"
        assert engine.connections[0].request.method == "POST"
