"""A stream whose replica is lost goes on with another one, and its client notices nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from elasticd.gateway.continuation.seam import MARK
from elasticd.routing_table import Endpoint
from elasticd.traffic import retries
from elasticd.traffic.retries import RetryBudget
from tests.bench.stub_engine import chat_context, expected
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

MESSAGES = [{"role": "user", "content": "hi"}]
CONTEXT = chat_context(MESSAGES)
PROMPT = "日本語 once upon a time"


@asynccontextmanager
async def continuing(*endpoints: Endpoint, **settings: Any) -> AsyncIterator[Stand]:
    """A gateway that knows its engines."""
    async with stand(**settings) as s:
        await s.publish(*endpoints, continues=True)
        engines = s.gateway.engines
        for spec in {e.spec_hash for e in endpoints}:
            await eventually(lambda spec=spec: engines.facts(spec), "its engines are known")
        yield s


async def told(s: Stand, path: str = "/v1/chat/completions", **fields: Any) -> bytes:
    async with s.post(path, stream=True, **fields) as answer:
        assert answer.status == 200
        return await answer.read()  # type: ignore[no-any-return]


def text_of(events: list[str]) -> str:
    choices = [c for e in events if e != "[DONE]" for c in json.loads(e).get("choices", ())]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)


def check_whole(body: bytes, text: str, seams: int) -> None:
    """One answer of one replica, as far as its client can see."""
    events = events_of(body)
    assert text_of(events) == text
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1
    documents = [json.loads(e) for e in events[:-1]]
    assert len({(d["id"], d["created"], d["model"], d["object"]) for d in documents}) == 1
    reasons = [c["finish_reason"] for d in documents for c in d["choices"]]
    assert [r for r in reasons if r is not None] == ["length"]
    assert body.count(MARK) == seams
    assert b'ids":[' not in body.replace(b" ", b""), "nobody asked for ids"


@pytest.mark.parametrize("cut", [1, 2, 7, 18])
async def test_a_chat_goes_on_exactly_where_it_broke_off(cut: int) -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=cut) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        body = await told(s, max_tokens=20)
        check_whole(body, expected(CONTEXT, 20), seams=1)
        assert dying.counts["faults"] == 1
        assert living.counts["tokens"] == 20 - cut, "nothing was generated twice"


async def test_a_text_completion_goes_on_as_one() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=5) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        fields = {"messages": None, "prompt": PROMPT}
        body = await told(s, "/v1/completions", max_tokens=12, **fields)
        check_whole(body, expected(PROMPT.encode(), 12), seams=1)
        assert PROMPT not in body.decode()


async def test_what_goes_on_may_break_off_again() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as one,
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as two,
        StubEngine(itl_ms=1) as three,
        continuing(one.endpoint("a"), two.endpoint("b"), three.endpoint("c")) as s,
    ):
        body = await told(s, max_tokens=20)
        check_whole(body, expected(CONTEXT, 20), seams=2)


async def test_a_stream_goes_on_at_once_while_an_earlier_replica_may_still_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that failed before the first byte accepts connections and does not answer."""
    monkeypatch.setattr("elasticd.gateway.relay._PROBE", 3600.0)

    async def closes(connection: Connection) -> None:
        connection.writer.close()

    async with (
        ScriptedEngine(closes) as first,
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("b"), living.endpoint("c")) as s,
    ):
        first.deaf = True
        await s.publish(first.endpoint("a"), continues=True)
        stream = asyncio.ensure_future(told(s, max_tokens=20))
        await eventually(lambda: first.connections, "the first has it")
        await s.publish(dying.endpoint("b"), continues=True)
        await eventually(lambda: dying.counts["faults"], "the second has lost it")
        await s.publish(living.endpoint("c"), continues=True)
        check_whole(await stream, expected(CONTEXT, 20), seams=1)


async def test_the_log_tells_who_goes_on_with_a_stream() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        await told(s, max_tokens=20)
        [broken] = [e for e in s.logs if e["event"] == "stream broken"]
        [goes_on] = [e for e in s.logs if e["event"] == "stream goes on"]
        assert (broken["replica"], goes_on["replica"]) == ("a", "b")
        assert broken["request_id"] == goes_on["request_id"]


async def test_a_request_under_which_three_replicas_were_lost_is_given_up_and_named() -> None:
    deadly = {"itl_ms": 1, "fault": "rst", "fault_after": 4}
    async with (
        StubEngine(**deadly) as one,
        StubEngine(**deadly) as two,
        StubEngine(**deadly) as three,
        StubEngine(itl_ms=1) as four,
        continuing(
            *(e.endpoint(n) for n, e in zip("abcd", (one, two, three, four), strict=True))
        ) as s,
    ):
        events = events_of(await told(s, max_tokens=40))
        error = error_of(events[-1])
        assert error["code"] == "replica_lost"
        assert text_of(events[:-1]) == expected(CONTEXT, 12)
        assert four.counts["requests"] == 0, "it walks no further through the fleet"
        assert any(e["event"] == "request failed" for e in s.logs)


async def test_the_streams_of_a_lost_replica_go_on_whatever_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A preemption breaks all of them at once, and that is when it counts."""
    monkeypatch.setattr(RetryBudget, "take", lambda self, now: False)
    async with (
        StubEngine(itl_ms=50) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a", slots=50)) as s,
        asyncio.TaskGroup() as tasks,
    ):
        streams = [tasks.create_task(told(s, max_tokens=200)) for _ in range(40)]
        await eventually(lambda: len(dying.replica.running) == 40, "all are there")
        await eventually(lambda: dying.counts["tokens"] > 200, "all have begun")
        await s.publish(dying.endpoint("a"), living.endpoint("b", slots=50), continues=True)
        await dying.replica.down()
        for stream in streams:
            check_whole(await stream, expected(CONTEXT, 200), seams=1)


async def test_no_request_walks_through_a_fleet_that_is_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each replica breaks what it gets. Who is alone has the one further try of a quiet fleet."""
    monkeypatch.setattr(retries, "LEAST", 0.0)
    engines = [StubEngine(itl_ms=1, fault="rst", fault_after=4) for _ in range(6)]
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        fleet = (engine.endpoint(f"r{n}") for n, engine in enumerate(engines))
        s = await stack.enter_async_context(continuing(*fleet))
        for tries in (3, 2):
            before = sum(engine.counts["requests"] for engine in engines)
            error = error_of(events_of(await told(s, max_tokens=40))[-1])
            assert error["code"] == "replica_lost"
            assert ("too many requests fail" in error["message"]) == (tries == 2)
            assert sum(engine.counts["requests"] for engine in engines) - before == tries
        assert [e["event"] for e in s.logs].count("retry budget spent") == 1


async def test_usage_counts_the_answer_over_all_replicas() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=6) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        options = {"include_usage": True}
        body = await told(s, max_tokens=20, stream_options=options)
        usages = [
            u
            for e in events_of(body)
            if e != "[DONE]" and (u := json.loads(e).get("usage")) is not None
        ]
        (usage,) = usages
        assert usage["completion_tokens"] == 20
        assert usage["prompt_tokens"] == len(CONTEXT)
        assert usage["total_tokens"] == 20 + len(CONTEXT)


async def test_a_client_that_asked_for_ids_gets_every_one_once() -> None:
    async with (
        StubEngine(itl_ms=1) as living,
        StubEngine(itl_ms=1, fault="rst", fault_after=6) as dying,
    ):
        async with continuing(living.endpoint("b")) as s:
            whole = await told(s, max_tokens=20, return_token_ids=True)
        async with continuing(dying.endpoint("a"), living.endpoint("b")) as s:
            body = await told(s, max_tokens=20, return_token_ids=True)
    assert MARK in body
    assert ids_of(body) == ids_of(whole)
    assert len(ids_of(body)) == 20


def ids_of(body: bytes) -> list[int]:
    documents = [json.loads(e) for e in events_of(body) if e != "[DONE]"]
    return [i for d in documents for c in d["choices"] for i in c.get("token_ids") or ()]


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 0.5},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"n": 2},
        {"a_field_of_tomorrow": 1},
    ],
)
async def test_what_would_not_go_on_exactly_ends_with_one_error(fields: dict[str, Any]) -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        events = events_of(await told(s, max_tokens=20, **fields))
        assert error_of(events[-1])["code"] == "replica_lost"
        assert living.counts["requests"] == 0
        (lost,) = [e for e in s.logs if e["event"] == "stream lost"]
        assert f"`{next(iter(fields))}`" in lost["why"]


async def test_an_answer_never_goes_on_with_another_spec() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as newer,
        StubEngine(itl_ms=1) as same,
        continuing(dying.endpoint("a"), newer.endpoint("b", spec_hash="newer")) as s,
    ):
        async with s.post(stream=True, max_tokens=20) as answer:
            head = await answer.content.readuntil(expected(CONTEXT, 4)[-5:].encode())
            await eventually(lambda: dying.counts["faults"], "the replica is lost")
            await s.publish(
                newer.endpoint("b", spec_hash="newer"), same.endpoint("c"), continues=True
            )
            body = head + await answer.read()
        check_whole(body, expected(CONTEXT, 20), seams=1)
        assert newer.counts["requests"] == 0


async def test_a_stream_whose_spec_was_rolled_away_is_told_at_once() -> None:
    """`max_wait` is a minute: a client would stare at comments for nothing."""
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as newer,
        continuing(dying.endpoint("a"), newer.endpoint("b", spec_hash="newer")) as s,
    ):
        async with s.post(stream=True, max_tokens=20) as answer:
            await eventually(lambda: dying.counts["faults"], "the replica is lost")
            left = newer.endpoint("b", spec_hash="newer")
            await s.publish(left, continues=True, spec_hash="newer")
            error = error_of(events_of(await answer.read())[-1])
        assert error["code"] == "replica_lost"
        assert "another version" in error["message"]


async def test_a_stalled_stream_is_moved() -> None:
    async with (
        StubEngine(itl_ms=1, fault="hang", fault_after=5) as silent,
        StubEngine(itl_ms=1) as living,
        continuing(silent.endpoint("a"), living.endpoint("b"), idle_timeout=0.3) as s,
    ):
        check_whole(await told(s, max_tokens=20), expected(CONTEXT, 20), seams=1)


@pytest.mark.parametrize(
    "fields", [{}, {"stream_options": {}}, {"stream_options": {"include_usage": True}}]
)
async def test_without_a_loss_every_byte_is_as_without_us(fields: dict[str, Any]) -> None:
    """Usage, in an event without a choice, comes to those who asked for it and to nobody else."""
    async with StubEngine(itl_ms=1) as engine:
        async with continuing(engine.endpoint()) as s:
            ours = events_of(await told(s, max_tokens=20, **fields))
        async with stand() as s:
            await s.publish(engine.endpoint())
            theirs = events_of(await told(s, max_tokens=20, **fields))
    asked = bool(fields.get("stream_options"))
    assert sum('"usage"' in e for e in ours) == sum('"choices":[]' in e for e in ours) == asked
    names = ("id", "created", "usage")  # the stub counts a prompt with ids in another way
    strip = [{k: v for k, v in json.loads(e).items() if k not in names} for e in ours[:-1]]
    assert strip == [
        {k: v for k, v in json.loads(e).items() if k not in names} for e in theirs[:-1]
    ]


async def test_a_model_that_is_not_to_be_continued_is_not() -> None:
    async with (
        StubEngine(itl_ms=1, fault="rst", fault_after=4) as dying,
        StubEngine(itl_ms=1) as living,
        stand() as s,
    ):
        await s.publish(dying.endpoint("a"), living.endpoint("b"))
        events = events_of(await told(s, max_tokens=20))
        assert error_of(events[-1])["code"] == "replica_lost"
