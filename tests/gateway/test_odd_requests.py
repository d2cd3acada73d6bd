"""Requests that engines understand although they are written in an odd way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from elasticd.gateway.continuation.seam import MARK
from elasticd.gateway.sse import COMMENT
from tests.bench.stub_engine import expected
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    events_of,
    stand,
)
from tests.gateway.test_continuation import CONTEXT, MESSAGES, check_whole, continuing, text_of

REQUEST = {"model": "m", "messages": MESSAGES, "max_tokens": 20}


async def sent(s: Stand, body: bytes) -> bytes:
    url, headers = s.url + "/v1/chat/completions", {"Content-Type": "application/json"}
    async with s.client.post(url, data=body, headers=headers) as answer:
        assert answer.status == 200
        return await answer.read()  # type: ignore[no-any-return]


def _why(s: Stand) -> str:
    (lost,) = [e for e in s.logs if e["event"] == "stream lost"]
    return str(lost["why"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_a_body_in_another_encoding_reaches_its_engine_untouched(encoding: str) -> None:
    body = json.dumps({**REQUEST, "stream": True}).encode(encoding)
    got: list[bytes] = []

    async def script(c: Connection) -> None:
        got.append(c.request.body)
        await c.json("200 OK", {})

    async with (
        StubEngine(itl_ms=1) as known,
        ScriptedEngine(script) as engine,
        continuing(known.endpoint("a")) as s,
    ):
        await s.publish(engine.endpoint("b"), continues=True)
        await sent(s, body)
    assert got == [body]


async def test_the_loss_of_a_body_in_another_encoding_is_told_with_its_reason() -> None:
    body = json.dumps({**REQUEST, "stream": True}).encode("utf-16")
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        events = events_of(await sent(s, body))
        assert text_of(events[:-1]) == expected(CONTEXT, 4)
        assert error_of(events[-1])["code"] == "replica_lost"
        assert _why(s) == "its body is not UTF-8"


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b" \n"])
@pytest.mark.parametrize("after", [b"", b" \r\n\t "])
async def test_what_stands_around_a_body_keeps_no_stream_from_going_on(
    before: bytes, after: bytes
) -> None:
    body = before + json.dumps({**REQUEST, "stream": True}).encode() + after
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        check_whole(await sent(s, body), expected(CONTEXT, 20), seams=1)


@pytest.mark.parametrize("value", [1, 1.0, "true", "True", "YES", "on", "t", "y", "1"])
async def test_a_stream_is_what_an_engine_takes_for_one(value: Any) -> None:
    """Its client is kept company while it waits, and told why it does not go on."""
    body = json.dumps({**REQUEST, "stream": value}).encode()
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        continuing(dying.endpoint("a")) as s,
    ):
        told = await sent(s, body)
        assert MARK not in told
        assert error_of(events_of(told)[-1])["code"] == "replica_lost"
        assert _why(s) == "this `stream` is not continued"


@pytest.mark.parametrize("value", [0, None, False, "false", "no", "", [], {}, 2])
async def test_what_no_engine_takes_for_a_stream_is_none(value: Any) -> None:
    """It gets no comments while it waits, when another that is one has got several."""

    async def script(c: Connection) -> None:
        await c.json("200 OK", {"ok": True})

    async with stand(comment_interval=0.01) as s, ScriptedEngine(script) as engine:
        await s.publish()
        body = json.dumps({**REQUEST, "stream": value}).encode()
        odd = asyncio.create_task(sent(s, body))
        await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
        async with s.post(stream=True) as stream:
            for _ in range(3):
                await stream.content.readuntil(COMMENT)
            await s.publish(engine.endpoint())
        assert json.loads(await odd) == {"ok": True}
