"""A stream with a parser on it goes on with another replica, and its client notices nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yarl import URL

from elasticd.gateway.continuation.seam import MARK
from tests.bench.stub_engine import EOS, chat_context, expected, tokenize
from tests.bench.stub_parser import REASONING, message
from tests.gateway.harness import Stand, StubEngine, error_of, events_of, eventually
from tests.gateway.merged import Merged
from tests.gateway.test_continuation import continuing, ids_of, told

CONTEXT = chat_context([{"role": "user", "content": "hi"}])
LENGTH = 40
"""Tokens: reasoning, content, two tool calls and the beginning of a third."""


def answer(tokens: int = LENGTH) -> dict[str, Any]:
    """What the client puts together of an undisturbed answer of so many tokens."""
    text = expected(CONTEXT, tokens)
    return message([text[i : i + 6] for i in range(0, len(text), 6)])


@asynccontextmanager
async def broken_after(
    cut: int, **more: Any
) -> AsyncIterator[tuple[Stand, StubEngine, StubEngine]]:
    """A replica that dies after so many tokens, and one that lives."""
    fault = {"itl_ms": 1, "fault": "rst", "fault_after": cut, "parser": 1}
    async with (
        StubEngine(**{**fault, **more}) as dying,
        StubEngine(itl_ms=1, parser=1, **more) as living,
        continuing(dying.endpoint("a"), living.endpoint("b")) as s,
    ):
        yield s, dying, living


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(1, LENGTH))
async def test_cut_anywhere_the_message_is_the_undisturbed_one(cut: int) -> None:
    async with broken_after(cut) as (s, dying, living):
        body = await told(s, max_tokens=LENGTH)
        merged = Merged(body)
        assert merged.message == answer()
        assert merged.finish == [("length", None)], "cut off, also in a call"
        assert body.count(MARK) == dying.counts["faults"] == 1
        assert living.counts["tokens"] == LENGTH - cut, "nothing was generated twice"
        assert merged.empty == 0
        assert b'ids":[' not in body.replace(b" ", b""), "nobody asked for ids"


@pytest.mark.parametrize(("end", "finish"), [(9, "stop"), (17, "tool_calls")])
async def test_the_token_that_ends_an_answer_is_never_its_text(end: int, finish: str) -> None:
    for cut in (1, end - 1, end):
        async with broken_after(cut, eos_after=end) as (s, _, living):
            merged = Merged(await told(s, max_tokens=LENGTH))
            assert merged.message == answer(end)
            assert merged.finish == [(finish, None)]
            assert living.counts["tokens"] == end + 1 - cut


async def test_without_a_loss_it_is_the_stream_that_the_engine_gives_by_itself() -> None:
    async with (
        StubEngine(itl_ms=1, parser=1) as engine,
        continuing(engine.endpoint("a")) as s,
    ):
        ours = await told(s, max_tokens=LENGTH)
        url = engine.endpoint("a").url + "/v1/chat/completions"
        fields = {"messages": [{"role": "user", "content": "hi"}], "model": "m", "stream": True}
        async with s.client.post(url, json={**fields, "max_tokens": LENGTH}) as direct:
            theirs = await direct.read()
        assert Merged(ours).message == Merged(theirs).message == answer()
        assert [_choices(e) for e in events_of(ours)[:-1]] == [
            _choices(e) for e in events_of(theirs)[:-1]
        ]


def _choices(event: str) -> Any:
    choices = json.loads(event)["choices"]
    for call in choices[0]["delta"].get("tool_calls", ()):
        call.pop("id", None)
    return choices


@pytest.mark.parametrize("fault", ["rst", "render", "derender"])
async def test_what_goes_on_may_be_lost_again_whatever_it_was_asked(fault: str) -> None:
    deadly = {"itl_ms": 1, "parser": 1, "fault": "rst", "fault_after": 9}
    again = {**deadly, "fault": fault, "fault_after": {"rst": 8, "render": 0, "derender": 1}[fault]}
    async with (
        StubEngine(**deadly) as one,
        StubEngine(**again) as two,
        StubEngine(itl_ms=1, parser=1) as three,
        continuing(one.endpoint("a"), two.endpoint("b"), three.endpoint("c")) as s,
    ):
        merged = Merged(await told(s, max_tokens=300))
        assert merged.message == answer(300)
        assert merged.finish == [("length", None)]
        assert len(set(merged.call_ids)) == len(merged.calls)
        assert one.counts["faults"] == two.counts["faults"] == 1
        assert three.counts["requests"] == 1


@pytest.mark.parametrize("after", [0, 1])
async def test_a_replica_that_says_nothing_to_a_question_is_left(after: int) -> None:
    mute = {"itl_ms": 1, "parser": 1, "fault": "mute", "fault_after": after}
    async with (
        StubEngine(itl_ms=1, parser=1, fault="rst", fault_after=9) as dying,
        StubEngine(**mute) as silent,
        StubEngine(itl_ms=1, parser=1) as living,
        continuing(
            dying.endpoint("a"), silent.endpoint("b"), living.endpoint("c"), idle_timeout=0.4
        ) as s,
    ):
        merged = Merged(await told(s, max_tokens=300))
        assert merged.message == answer(300)
        assert silent.counts["render"] + silent.counts["derender"] > after


async def test_a_client_that_asked_for_ids_gets_every_one_once() -> None:
    async with broken_after(13, eos_after=17) as (s, _, _living):
        body = await told(s, max_tokens=LENGTH, return_token_ids=True)
        assert MARK in body
        assert ids_of(body) == [*tokenize(expected(CONTEXT, 17).encode()), EOS]
        assert Merged(body).message == answer(17)


async def test_usage_counts_the_answer_over_all_replicas() -> None:
    async with broken_after(13) as (s, _, _living):
        options = {"include_usage": True}
        (usage,) = Merged(await told(s, max_tokens=LENGTH, stream_options=options)).usage
        assert usage["prompt_tokens"] == len(CONTEXT)
        assert usage["completion_tokens"] == LENGTH
        assert usage["total_tokens"] == LENGTH + len(CONTEXT)
        assert usage["completion_tokens_details"] == {"reasoning_tokens": len(REASONING)}


async def test_running_usage_counts_on_over_the_seam() -> None:
    async with broken_after(4) as (s, _, _living):
        options = {"include_usage": True, "continuous_usage_stats": True}
        usages = Merged(await told(s, max_tokens=LENGTH, stream_options=options)).usage
        counts = [u["completion_tokens"] for u in usages]
        assert counts == sorted(counts)
        assert counts[-1] == LENGTH
        assert usages[-1]["completion_tokens_details"] == {"reasoning_tokens": len(REASONING)}


@pytest.mark.parametrize(
    "fields",
    [
        {"include_reasoning": True},
        {"ignore_eos": True},
        {"tool_choice": "none", "tools": []},
        {"parallel_tool_calls": True, "chat_template_kwargs": {"enable_thinking": True}},
        {"stop_token_ids": [5], "priority": 3, "logit_bias": {"5": 1}},
    ],
)
async def test_what_changes_nothing_in_its_way_goes_on(fields: dict[str, Any]) -> None:
    async with broken_after(13) as (s, _, _living):
        body = await told(s, max_tokens=LENGTH, **fields)
        assert Merged(body).message == answer()
        assert MARK in body


async def check_ends(s: Stand, living: StubEngine, why: str, **fields: Any) -> None:
    events = events_of(await told(s, max_tokens=LENGTH, **fields))
    assert error_of(events[-1])["code"] == "replica_lost"
    assert living.counts["tokens"] == 0
    (lost,) = [e for e in s.logs if e["event"] == "stream lost"]
    assert why in lost["why"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "x"},
        {"include_stop_str_in_output": True, "stop_token_ids": [5]},
        {"include_reasoning": False},
        {"logprobs": True},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"n": 2},
    ],
)
async def test_what_would_not_go_on_exactly_ends_with_one_error(fields: dict[str, Any]) -> None:
    async with broken_after(13) as (s, _, living):
        await check_ends(s, living, f"`{next(iter(fields))}`", **fields)
        assert living.counts["render"] == 0


async def test_another_prompt_is_never_gone_on_with() -> None:
    async with broken_after(13) as (s, _, living):
        living.set(other_prompt=1)
        await check_ends(s, living, "another prompt")


async def test_an_engine_that_cannot_derender_is_not_asked_to() -> None:
    async with broken_after(13, scale_out=0) as (s, _, living):
        await check_ends(s, living, "--enable-scale-out")


async def test_where_one_refuses_to_another_goes_on() -> None:
    async with broken_after(13) as (s, dying, refusing), StubEngine(itl_ms=1, parser=1) as good:
        refusing.set(scale_out=0)
        await s.publish(
            dying.endpoint("a"), refusing.endpoint("b"), good.endpoint("c"), continues=True
        )
        for _ in range(4):
            merged = Merged(await told(s, max_tokens=LENGTH))
            assert merged.message == answer()
        assert refusing.counts["tokens"] == 0


async def test_where_all_refuse_the_stream_ends_and_no_request_walks_on_for_ever() -> None:
    async with broken_after(13) as (s, _, refusing):
        refusing.set(scale_out=0)
        events = events_of(await told(s, max_tokens=LENGTH))
        assert error_of(events[-1])["code"] == "replica_lost"


async def test_a_client_that_leaves_ends_everything() -> None:
    async with broken_after(13) as (s, _, living):
        living.set(itl_ms=20)
        async with s.post(stream=True, max_tokens=3000) as answer_:
            await answer_.content.readuntil(MARK.strip())
            await eventually(lambda: living.counts["derender"], "the answer goes on")
        await eventually(lambda: living.counts["aborted"], "the engine was told")
        asked = living.counts["derender"]
        await asyncio.sleep(0)
        assert living.counts["derender"] <= asked + 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/render",
        "/v1/chat/completions/derender",
        "/v1/completions/render",
        "/v1/chat/completions/%72ender",
        "/v1/chat/completions%2Frender",
        "/v1/chat/completions/render/",
        "/inference/v1/generate",
    ],
)
async def test_nobody_else_reaches_what_the_gateway_asks(path: str) -> None:
    async with (
        StubEngine(itl_ms=1, parser=1) as engine,
        continuing(engine.endpoint("a")) as s,
    ):
        url = URL(s.url + path, encoded=True)
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        async with s.client.post(url, json=body) as refused:
            assert refused.status == 404
            assert error_of(await refused.read())["code"] == "not_found"
        assert engine.counts["render"] == engine.counts["requests"] == 0
