"""What a replica answers that goes on with a parsed stream, and cannot be, is the loss of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import ParsedSeam
from tests.gateway.continuation.engine import facts, terms
from tests.gateway.continuation.test_parsed import (
    REQUEST,
    TOLD,
    asked,
    choices,
    generated,
    going_on,
    parsed,
    rendering,
    seam,
)

DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"no json",
        b"[]",
        b"7",
        DEEP,
        b'{"token_ids":' + DEEP,
        rendering(sampling_params=None),
        rendering(sampling_params=[]),
        rendering(token_ids=5),
        rendering(sampling={"max_tokens": "50"}),
        rendering(sampling={"max_tokens": None}),
        rendering(sampling={"max_tokens": 1e300}),
        rendering(sampling={"min_tokens": [1]}),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_a_rendering_that_is_none_is_lost_again(data: bytes) -> None:
    made = seam()
    made.lost()
    with pytest.raises(Broken):
        made.rendered(data)
    assert made.rendered(rendering()) is not None


def test_a_rendering_never_allows_more_than_the_client_did() -> None:
    made = seam(max_tokens=8)
    made.lost()
    body = made.rendered(rendering())
    assert body is not None
    assert json.loads(body)["sampling_params"]["max_tokens"] == 3
    with pytest.raises(Broken, match="more tokens"):
        made.take(generated([15, 16]) + generated([17, 18]))
    assert asked(made) is None, "nothing of it is shown"


def state(**changes: Any) -> bytes:
    told = {"tools_streamed": False, "last_tool_call_ids": [], **changes}
    choices = [{"delta": {"content": "x"}}]
    return json.dumps({"chunk": {"choices": choices}, "stream_state": told}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"chunk":{"choices":[]},"stream_state":{}}',
        DEEP,
        parsed({"content": 5}),
        parsed({"content": ["x"]}),
        parsed({"reasoning": {"a": 1}}),
        parsed({"field_of_tomorrow": True}),
        parsed({"tool_calls": 5}),
        parsed({"tool_calls": ["x"]}),
        parsed({"tool_calls": [{"function": {}}]}),
        parsed({"tool_calls": [{"index": "0"}]}),
        parsed({"tool_calls": [{"index": -1}]}),
        parsed({"tool_calls": [{"index": 0, "id": 5}]}),
        parsed({"tool_calls": [{"index": 0, "function": "f"}]}),
        parsed({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}),
        parsed({}).replace(b'"delta": {', b'"delta": null, "x": {'),
        state(tools_streamed="yes"),
        state(tools_streamed=None),
        state(last_tool_call_ids=[1]),
        state(last_tool_call_ids=7),
    ],
    ids=lambda data: repr(data[:60]),
)
def test_an_answer_that_is_none_is_lost_again(data: bytes) -> None:
    made = going_on()
    made.take(generated([15]))
    asked(made)
    with pytest.raises(Broken):
        made.derendered(data)


def test_half_a_character_is_told_as_an_escape() -> None:
    made = going_on()
    made.take(generated([15, 16], "stop", "\ud800"))
    asked(made)
    (choice,) = choices(made.derendered(parsed({"content": "\ud83d"})))
    assert choice["delta"] == {"content": "\ud83d"}
    asked(made)
    out = made.derendered(parsed({}))
    assert choices(out)[0]["stop_reason"] == "\ud800"


@pytest.mark.parametrize(
    "data",
    [None, b"", DEEP, b"[]", b"{}", *(b'{"reasoning_tokens":%b}' % n for n in (b"-1", b'"1"'))]
    + [b'{"reasoning_tokens":%b}' % n for n in (b"Infinity", b"true", b"99", b"9" * 5000)],
    ids=lambda data: repr(data)[:30],
)
def test_a_count_that_cannot_be_is_not_told(data: bytes | None) -> None:
    made = ParsedSeam(
        terms(stream_options={"include_usage": True}), facts(parser=True, reasoning=True), REQUEST
    )
    for told in TOLD:
        made.keep(told)
    made.lost()
    made.rendered(rendering())
    made.take(generated([15], "length"))
    asked(made)
    assert made.count() is not None
    made.counted(data)
    out = made.derendered(parsed({"content": "x"}))
    assert b'"completion_tokens":6' in out
    assert b"reasoning_tokens" not in out


def test_a_mark_before_a_request_is_left_out_where_it_becomes_a_part() -> None:
    made = ParsedSeam(terms(), facts(parser=True), b"\xef\xbb\xbf" + REQUEST)
    for told in TOLD:
        made.keep(told)
    made.lost()
    made.rendered(rendering())
    made.take(generated([15]))
    assert asked(made)["chat_request"] == json.loads(REQUEST)
