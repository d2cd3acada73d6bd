"""Whatever a replica says that goes on with a stream: the client gets its answer from the next."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elasticd.gateway.continuation.parsed import DERENDER, GENERATE, RENDER
from elasticd.routing_table import Tier
from tests.bench.stub_engine import expected, tokenize
from tests.gateway.harness import Connection, ScriptedEngine, Stand, StubEngine, stand
from tests.gateway.merged import Merged
from tests.gateway.test_continuation import CONTEXT, check_whole, continuing, told
from tests.gateway.test_parsed_continuation import answer

DEEP = b"[" * 100_000


def event(ids: Any, reason: Any = None, **choice: Any) -> bytes:
    whole = {"index": 0, "text": "z", "token_ids": ids, "finish_reason": reason, **choice}
    return b"data: " + json.dumps({"choices": [whole]}).encode() + b"\n\n"


ODD = {
    "a number for ids": event(5),
    "a text for ids": event("abc"),
    "objects for ids": event([{"a": 1}]),
    "ids that cannot be": event([-1, 10**30, 999_999, True]),
    "a reason that is none": event([1], 7),
    "json without end": b"data: " + DEEP + b"\n\n",
    "no utf-8": b'data: {"choices":"\xff\xfe"}\n\n',
    "too many tokens": b"".join(event([n]) for n in range(500)),
    "too many at once": event([*range(500)]),
    "an error after a token": event([1]) + b'data: {"error":{"message":"x"}}\n\n',
}


@asynccontextmanager
async def odd_second(script: Any, **settings: Any) -> AsyncIterator[tuple[Stand, ScriptedEngine]]:
    """One that dies after five tokens, one that is odd, and one that is taken last of all."""
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=5, **settings) as dying,
        ScriptedEngine(script) as odd,
        StubEngine(itl_ms=1, **settings) as living,
        continuing(dying.endpoint("a")) as s,
    ):
        last = living.endpoint("c", tier=Tier.LAST_RESORT)
        await s.publish(dying.endpoint("a", weight=9.0), odd.endpoint("b"), last, continues=True)
        yield s, odd


def check_no_fault(s: Stand) -> None:
    assert [e for e in s.logs if "exc_info" in e or e["log_level"] in ("error", "critical")] == []


@pytest.mark.parametrize("said", ODD.values(), ids=ODD.keys())
async def test_what_goes_on_oddly_is_lost_and_the_next_one_goes_on(said: bytes) -> None:
    async def script(c: Connection) -> None:
        await c.head()
        await c.chunk(said)
        await c.until_client_leaves()

    async with odd_second(script) as (s, odd):
        check_whole(await told(s, max_tokens=20), expected(CONTEXT, 20), seams=2)
        assert odd.connections, "it was asked"
        check_no_fault(s)


async def test_half_a_character_that_a_replica_says_ends_no_stream() -> None:
    async def script(c: Connection) -> None:
        left = tokenize(expected(CONTEXT, 12).encode())[5:]
        await c.head()
        await c.chunk(event(left, "stop", stop_reason="\ud800"))
        await c.end()

    async with odd_second(script) as (s, _):
        body = await told(s, max_tokens=12)
        assert rb'"stop_reason":"\ud800"' in body
        assert body.endswith(b"data: [DONE]\n\n")
        check_no_fault(s)


def delta(**delta: Any) -> bytes:
    state = {"tools_streamed": False, "last_tool_call_ids": []}
    return json.dumps({"chunk": {"choices": [{"delta": delta}]}, "stream_state": state}).encode()


@pytest.mark.parametrize("rendered", [DEEP, b"[]", b"no json", b'{"token_ids":5}'])
async def test_a_rendering_that_is_none_is_asked_of_the_next_one(rendered: bytes) -> None:
    async def script(c: Connection) -> None:
        assert c.request.target == RENDER
        await whole(c, rendered)

    async with odd_second(script, parser=1) as (s, odd):
        assert Merged(await told(s, max_tokens=40)).message == answer()
        assert odd.connections
        check_no_fault(s)


@pytest.mark.parametrize("parsed", [DEEP, b"[]", delta(content=5), delta(tool_calls=[{}])])
async def test_parsed_text_that_is_none_is_asked_of_the_next_one(parsed: bytes) -> None:
    async def script(c: Connection) -> None:
        if c.request.target == RENDER:
            prompt = list(tokenize(CONTEXT))
            sampling = {"max_tokens": 40, "min_tokens": 0}
            document = {"token_ids": prompt, "sampling_params": sampling}
            await whole(c, json.dumps(document).encode())
        elif c.request.target == GENERATE:
            await c.head()
            await c.chunk(event([1]))
            await c.until_client_leaves()
        else:
            assert c.request.target == DERENDER
            await whole(c, parsed)

    async with odd_second(script, parser=1) as (s, odd):
        assert Merged(await told(s, max_tokens=40)).message == answer()
        assert odd.connections[-1].request.target == DERENDER
        check_no_fault(s)


async def whole(c: Connection, body: bytes) -> None:
    await c.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


async def test_an_answer_without_end_to_a_stream_that_had_comments_is_one_error() -> None:
    async def script(c: Connection) -> None:
        await whole(c, DEEP)

    async with stand(comment_interval=0.01) as s, ScriptedEngine(script) as engine:
        await s.publish()
        async with s.post(stream=True) as stream:
            await stream.content.readuntil(b"\n\n")
            await s.publish(engine.endpoint())
            body = await stream.read()
        assert b'"error"' in body
        check_no_fault(s)
