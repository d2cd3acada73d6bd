"""Promises about bodies that come slowly: real clients finish, nobody holds a place on purpose."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.harness import Connection, ScriptedEngine, error_of, stand
from tests.gateway.raw import RawClient, connected

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


async def echo(c: Connection) -> None:
    await c.json("200 OK", {"bytes": len(c.request.body)})


async def drip(client: RawClient, drop: bytes) -> bytes:
    """Sends drop after drop until there is an answer."""
    answer = asyncio.ensure_future(client.until(b"}}"))
    while not (await asyncio.wait({answer}, timeout=0.05))[0]:
        await client.send(drop)
    return answer.result()


@pytest.mark.parametrize(
    ("framing", "drop"),
    [
        (b"Content-Length: 100000\r\n\r\n", b" "),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
)
async def test_a_body_that_comes_drop_by_drop_is_cut_off_with_408(
    framing: bytes, drop: bytes
) -> None:
    async with stand(body_timeout=0.4) as s, connected(s.gateway.port) as client:
        await s.publish()
        await client.send(HEAD + framing)
        answer = await drip(client, drop)
        assert answer.startswith(b"HTTP/1.1 408 ")
        error = error_of(answer.partition(b"\r\n\r\n")[2])
        assert (error["code"], "a second more for each KiB" in error["message"]) == (
            "body_timeout",
            True,
        )


async def test_a_large_body_over_a_slow_line_may_take_longer_than_the_timeout() -> None:
    body = json.dumps({"model": "m", "prompt": "x" * 200_000}).encode()
    piece = len(body) // 13
    async with stand(body_timeout=1.0) as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
            answer = asyncio.ensure_future(client.until(b"}"))
            for at in range(0, len(body), piece):
                await asyncio.wait({answer}, timeout=0.1)
                await client.send(body[at : at + piece])
            assert (await answer).startswith(b"HTTP/1.1 200 ")
        assert engine.connections[0].request.body == body
