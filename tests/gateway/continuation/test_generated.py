"""What goes on with an answer is believed as far as it could be true."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.gateway.continuation.generated import Step, steps_of
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.record import Unreadable, read_parsed, read_told
from elasticd.gateway.continuation.terms import Kind

DEEP = b"[" * 100_000
DONE = b"data: [DONE]\n\n"


def event(**choice: Any) -> bytes:
    whole = {"index": 0, "token_ids": [1], "finish_reason": None, **choice}
    return b"data: " + json.dumps({"choices": [whole]}).encode() + b"\n\n"


def step(ids: list[int], reason: str | None = None, stopped_by: Any = None) -> Step:
    return Step(ids, reason, stopped_by, None)


ODD: list[bytes] = [
    *(
        event(token_ids=ids)
        for ids in (5, "abc", [{"a": 1}], {"1": 2}, [-1], [10**30], [True], [1.0], [300], [None])
    ),
    *(event(finish_reason=reason) for reason in (7, {"a": 1}, [], True, "", "bored", "\ud800")),
    *(event(finish_reason=reason) for reason in ("abort", "error")),
    *(event(finish_reason="stop", stop_reason=by) for by in ([1], {}, True, -1, 1.5, 300)),
    b"data: " + DEEP + b"\n\n",
    b'data: {"choices":' + DEEP + b"\n\n",
    b'data: {"choices":[{"token_ids":[' + b"9" * 6000 + b'],"finish_reason":null}]}\n\n',
    b'data: {"choices":"\xff\xfe"}\n\n',
    b'data: {"choices":"x"}\n\n',
    b'data: {"choices":{"a":1}}\n\n',
    b'data: {"choices":[1,2]}\n\n',
    b'data: {"choices":[null]}\n\n',
    b"data: []\n\n",
    b"data: null\n\n",
    b'data: {"error":"\\ud800"}\n\n',
    event().replace(b"{", b'{"system_fingerprint": 5, ', 1),
    event().replace(b"token_ids", b"others"),
    event().replace(b"finish_reason", b"others"),
    DONE,
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd[:60]))
def test_whatever_else_a_replica_says_is_the_loss_of_it(odd: bytes) -> None:
    with pytest.raises(Broken):
        steps_of(event() + odd, 300, 100)


def test_what_an_engine_says_is_taken_as_it_is() -> None:
    told = event(token_ids=[1, 2]) + event(token_ids=None) + event(token_ids=[])
    assert steps_of(told, 300, 2) == [step([1, 2]), step([]), step([])]


@pytest.mark.parametrize("reason", ["stop", "length", "repetition"])
@pytest.mark.parametrize("by", [None, 7, "END"])
def test_the_reason_of_the_end_is_one_of_the_engines(reason: str, by: Any) -> None:
    (last,) = steps_of(event(finish_reason=reason, stop_reason=by) + DONE + event(), 300, 9)
    assert last == step([1], reason, by)
    assert last.ended_by_token == (reason == "stop" and by != "END")


def test_no_more_ids_come_than_were_asked_for() -> None:
    assert len(steps_of(event() * 12, 300, 12)) == 12
    with pytest.raises(Broken, match="more tokens"):
        steps_of(event() * 13, 300, 12)
    with pytest.raises(Broken, match="more tokens"):
        steps_of(event(token_ids=[1] * 13), 300, 12)


HEAD = {"id": "x", "created": 7, "model": "m"}
ROLE = {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
TOLD = {"index": 0, "delta": {"content": "x"}, "finish_reason": None, "token_ids": [1]}


def stream(part: str, **changes: Any) -> bytes:
    """Two events of a first replica, with these changes in one of its parts."""
    first = {**HEAD, "choices": [ROLE], "prompt_token_ids": [1, 2]}
    second = {**HEAD, "choices": [{**TOLD, **(changes if part == "choice" else {})}]}
    if part != "choice":
        {"first": first, "second": second}[part].update(changes)
    return b"".join(b"data: " + json.dumps(d).encode() + b"\n\n" for d in (first, second))


@pytest.mark.parametrize(
    "data",
    [
        b"data: " + DEEP + b"\n\n",
        stream("first", prompt_token_ids="abc"),
        stream("first", prompt_token_ids=[10**30]),
        stream("first", prompt_token_ids=5),
        stream("second", id=5),
        stream("second", created="now"),
        stream("second", model=None),
        stream("second", system_fingerprint=[1]),
        stream("second", choices=5),
        stream("second", choices=[5]),
        stream("choice", token_ids=5),
        stream("choice", token_ids="abc"),
        stream("choice", token_ids=[True]),
        stream("choice", token_ids=[300]),
        stream("choice", finish_reason=7),
        stream("choice", delta=None),
    ],
    ids=lambda data: repr(data[-90:]),
)
def test_a_first_stream_that_is_odd_is_not_gone_on_with(data: bytes) -> None:
    assert read_told(Kind.CHAT, stream("choice"), 300).text == "x"
    with pytest.raises(Unreadable):
        read_told(Kind.CHAT, data, 300)
    with pytest.raises(Unreadable):
        read_parsed(data, 300)
