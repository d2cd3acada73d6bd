"""How an event stream may begin, and not begin: a client that has nothing yet loses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elasticd.gateway.continuation import kept
from elasticd.gateway.failures import OutOfResources
from elasticd.gateway.http.pool import Pool
from tests.bench.stub_engine import FACTS, chat_context, expected, tokenize, tokenizer
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    events_of,
    eventually,
    stand,
)
from tests.gateway.test_continuation import CONTEXT, MESSAGES, check_whole, text_of, told

TOKENS = 12


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def chunk(delta: dict[str, Any], ids: list[int] | None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": ids}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**head, "choices": [choice], **more})


PROMPT = tokenize(chat_context(MESSAGES))
ROLE = chunk({"role": "assistant", "content": ""}, None, prompt_token_ids=PROMPT)
TEXT = expected(CONTEXT, TOKENS)
ANSWER = [
    chunk({"content": TEXT[at : at + 6]}, tokenize(TEXT[at : at + 6].encode()))
    for at in range(0, len(TEXT), 6)
]
FAILED = event({"error": {"message": "x", "type": "InternalServerError", "code": 500}})
BLAMED = event({"error": {"message": "no such tool", "type": "BadRequestError", "code": 400}})
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def beginning(*reads: bytes, continues: bool = True) -> AsyncIterator[tuple[Stand, Any, Any]]:
    """A gateway, a replica that answers in these reads, and a good one that comes meanwhile."""
    go = asyncio.Event()

    async def script(connection: Connection) -> None:
        target = connection.request.target
        if target == "/elasticd/engine":
            await connection.json("200 OK", FACTS | {"parser": False, "scale_out": False})
        elif target == "/elasticd/tokenizer":
            await connection.json("200 OK", json.loads(tokenizer()))
        else:
            await go.wait()
            await connection.head()
            for data in reads:
                await connection.chunk(data)
            await connection.end()

    async with ScriptedEngine(script) as bad, StubEngine() as good, stand() as s:
        await s.publish(bad.endpoint("a"), continues=continues)
        if continues:
            await eventually(lambda: s.gateway.engines.facts("hash"), "its engine is known")
        yield s, (bad, go), good


async def answered(s: Stand, bad: tuple[ScriptedEngine, asyncio.Event], good: Any) -> bytes:
    engine, go = bad
    continues = s.gateway.engines.facts("hash") is not None
    asking = asyncio.create_task(told(s, max_tokens=TOKENS))
    await eventually(
        lambda: any("chat" in c.request.target for c in engine.connections), "it is asked"
    )
    await s.publish(engine.endpoint("a"), good.endpoint("b"), continues=continues)
    go.set()
    return await asking


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize(
    "reads",
    [(), (ROLE[:200],), (b": ping\n\n",), (DONE,), (FAILED + DONE,), (b": ping\n\n" + FAILED,)],
    ids=["empty", "half an event", "a comment", "only its end", "an error", "ping and error"],
)
async def test_what_never_begins_is_asked_of_another_replica(
    reads: Sequence[bytes], continues: bool
) -> None:
    async with beginning(*reads, continues=continues) as (s, bad, good):
        check_whole(await answered(s, bad, good), expected(CONTEXT, TOKENS), seams=0)


@pytest.mark.parametrize(
    "reads",
    [(ROLE + FAILED + DONE,), (ROLE, FAILED + DONE), (ROLE + b"".join(ANSWER[:3]) + FAILED,)],
)
async def test_what_came_before_an_error_in_one_read_is_kept(reads: Sequence[bytes]) -> None:
    async with beginning(*reads) as (s, bad, good):
        check_whole(await answered(s, bad, good), expected(CONTEXT, TOKENS), seams=1)


@pytest.mark.parametrize("reads", [(BLAMED + DONE,), (ROLE + BLAMED + DONE,), (ROLE, BLAMED, DONE)])
async def test_what_an_engine_has_against_a_request_is_its_answer(reads: Sequence[bytes]) -> None:
    async with beginning(*reads) as (s, bad, good):
        events = events_of(await answered(s, bad, good))
        assert json.loads(events[-2])["error"]["message"] == "no such tool"
        assert events[-1] == "[DONE]"
        assert good.counts["requests"] == 0
        assert not any(r["broken"] for r in s.controller.reports)


async def test_streams_that_waited_for_the_first_replica_go_on_when_it_is_lost() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=5) as dying,
        StubEngine() as living,
        stand() as s,
    ):
        await s.publish(continues=True)
        asking = [asyncio.create_task(told(s, max_tokens=TOKENS)) for _ in range(5)]
        await s.report(lambda r: r["models"][0]["queued"] == 5, "they wait")
        dying.set(max_seqs=10)
        await s.publish(dying.endpoint("a", slots=10), continues=True)
        await s.report(lambda r: bool(r["broken"]), "it is lost")
        await s.publish(living.endpoint("b", slots=10), continues=True)
        for body in await asyncio.gather(*asking):
            check_whole(body, expected(CONTEXT, TOKENS), seams=1)


async def test_a_long_answer_is_kept_small_and_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "_SHRINK_AFTER", 8)
    monkeypatch.setattr(kept, "_AT_ONCE", 8)
    async with (
        StubEngine(fault="rst", fault_after=40) as dying,
        StubEngine() as living,
        stand() as s,
    ):
        await s.publish(dying.endpoint("a"), continues=True)
        await eventually(lambda: s.gateway.engines.facts("hash"), "its engine is known")
        asking = asyncio.create_task(told(s, max_tokens=60))
        await s.report(lambda r: bool(r["broken"]), "it is lost")
        await s.publish(living.endpoint("b"), continues=True)
        check_whole(await asking, expected(CONTEXT, 60), seams=1)


async def test_a_moment_without_descriptors_ends_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect, left = Pool.connect, [2]

    async def now_and_then(pool: Pool, address: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OutOfResources("no descriptor is left")
        return await connect(pool, address)

    async with (
        StubEngine(itl_ms=5, fault="rst", fault_after=5) as dying,
        StubEngine() as living,
        stand() as s,
    ):
        await s.publish(dying.endpoint("a"), continues=True)
        await eventually(lambda: s.gateway.engines.facts("hash"), "its engine is known")
        async with s.post(stream=True, max_tokens=TOKENS) as answer:
            first = await answer.content.readuntil(b"content")
            monkeypatch.setattr(Pool, "connect", now_and_then)
            await s.publish(dying.endpoint("a"), living.endpoint("b"), continues=True)
            check_whole(first + await answer.read(), expected(CONTEXT, TOKENS), seams=1)
        assert left == [0]


async def test_a_stream_that_we_cannot_save_ourselves_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_pool: Pool, _address: Any) -> Any:
        raise RuntimeError("a fault of our own")

    async with StubEngine(itl_ms=5, fault="rst", fault_after=5) as dying, stand() as s:
        await s.publish(dying.endpoint("a"), continues=True)
        await eventually(lambda: s.gateway.engines.facts("hash"), "its engine is known")
        async with s.post(stream=True, max_tokens=TOKENS) as answer:
            first = await answer.content.readuntil(b"content")
            monkeypatch.setattr(Pool, "connect", broken)
            events = events_of(first + await answer.read())
        assert error_of(events[-1])["code"] == "internal_error"
        assert text_of(events[:-1])
        await s.report(lambda r: any(m["lost"] == 1 for m in r["moved"]), "it is told")
