"""What replicas are asked to go on with a parsed stream, and what their answers become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.gateway.continuation.ids import without_ids_and_empty
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import ParsedSeam
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.continuation.seam import Rest
from tests.gateway.continuation.engine import facts, terms

REQUEST = b'{"model":"m","messages":[]}'
PROMPT = [1, 2, 3]
SAMPLING = {"max_tokens": 50, "min_tokens": 6, "temperature": 0.5}


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def chunk(delta: dict[str, Any], ids: list[int], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "token_ids": ids}
    return event({"id": "x", "created": 7, "model": "m", "choices": [choice]})


def role() -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    head = {"id": "x", "created": 7, "model": "m", "prompt_token_ids": PROMPT}
    return event({**head, "choices": [choice]})


def call(index: int, call_id: str | None = None, **function: str) -> dict[str, Any]:
    begun = {} if call_id is None else {"id": call_id, "type": "function"}
    return {"content": None, "tool_calls": [{"index": index, **begun, "function": function}]}


TOLD = (
    role(),
    chunk({}, [10]),
    chunk({"reasoning": "a"}, [11, 12]),
    chunk(call(0, "call-0", name="f"), [13]),
    chunk(call(0, arguments="{"), [14]),
)


def seam(*told: bytes, **fields: Any) -> ParsedSeam:
    made = ParsedSeam(terms(**fields), facts(parser=True), REQUEST)
    for data in told or TOLD:
        made.keep(data)
    return made


def rendering(**changes: Any) -> bytes:
    sampling = {**SAMPLING, **changes.pop("sampling", {})}
    return json.dumps({"token_ids": PROMPT, "sampling_params": sampling, **changes}).encode()


def generated(ids: list[int], finish: str | None = None, stopped_by: Any = None) -> bytes:
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish, "stop_reason": stopped_by}
    return event({"choices": [choice]})


def parsed(delta: dict[str, Any], *calls: str) -> bytes:
    state = {"tools_streamed": bool(calls), "last_tool_call_ids": calls}
    whole = {"role": None, "content": None, "reasoning": None, "tool_calls": [], **delta}
    return json.dumps({"chunk": {"choices": [{"delta": whole}]}, "stream_state": state}).encode()


def going_on(*told: bytes, **fields: Any) -> ParsedSeam:
    made = seam(*told, **fields)
    assert made.lost() is None
    assert made.rendered(rendering()) is not None
    return made


def asked(made: ParsedSeam) -> Any:
    question = made.question()
    return None if question is None else json.loads(question)


def choices(data: bytes) -> list[Any]:
    events = [e[6:] for e in data.split(b"\n\n") if e.startswith(b"data: {")]
    return [c for e in events for c in json.loads(e)["choices"]]


def test_generated_is_what_was_rendered_after_all_that_was_told() -> None:
    made = seam()
    made.lost()
    body = made.rendered(rendering(model="m", priority=3, stream=False))
    assert body is not None
    assert json.loads(body) == {
        "token_ids": [*PROMPT, 10, 11, 12, 13, 14],
        "sampling_params": {**SAMPLING, "max_tokens": 45, "min_tokens": 1},
        "model": "m",
        "priority": 3,
        "stream": True,
        "stream_options": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("structured_outputs", {"json": "{}"}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("stop", ["x"]),
        ("bad_words", ["x"]),
        ("thinking_token_budget", 9),
        ("logprobs", 1),
        ("n", 2),
    ],
)
def test_what_the_server_adds_by_itself_and_does_not_go_on_is_seen(name: str, value: Any) -> None:
    made = seam()
    made.lost()
    with pytest.raises(Unreadable, match=name):
        made.rendered(rendering(sampling={name: value}))


@pytest.mark.parametrize(
    "data",
    [
        rendering(token_ids=[1, 2, 4]),
        rendering(token_ids=[1, 2]),
        rendering(sampling={"ignore_eos": True, "skip_special_tokens": True}),
    ],
)
def test_a_rendering_that_is_another_request_is_never_gone_on_with(data: bytes) -> None:
    made = seam()
    made.lost()
    with pytest.raises(Unreadable):
        made.rendered(data)


def test_the_parser_is_told_all_that_was_told_and_in_which_pieces() -> None:
    made = going_on()
    made.take(generated([15]) + generated([16]))
    question = asked(made)
    assert question["chat_request"] == json.loads(REQUEST)
    assert question["prompt_token_ids"] == PROMPT
    assert question["generate_chunk"]["choices"][0]["token_ids"] == [15, 16]
    assert question["stream_state"] == {
        "output_token_ids": [10, 11, 12, 13, 14],
        "output_chunk_lens": [1, 2, 1, 1],
        "role_sent": True,
        "tools_streamed": True,
        "last_tool_call_ids": ["call-0"],
    }
    assert choices(made.derendered(parsed(call(0, arguments='"'), "call-0")))
    made.take(generated([17]))
    state = asked(made)["stream_state"]
    assert state["output_token_ids"] == [10, 11, 12, 13, 14, 15, 16]
    assert state["output_chunk_lens"] == [1, 2, 1, 1, 2]


def test_what_no_client_was_shown_is_forgotten_with_its_replica() -> None:
    made = going_on()
    made.take(generated([15]))
    asked(made)
    made.derendered(parsed({"content": "x"}))
    made.take(generated([16]))
    asked(made)
    made.take(generated([17]))
    assert made.lost() is None
    body = made.rendered(rendering())
    assert body is not None
    assert json.loads(body)["token_ids"] == [*PROMPT, 10, 11, 12, 13, 14, 15]
    assert asked(made) is None


@pytest.mark.parametrize("stopped_by", [None, 99])
def test_the_token_that_ends_an_answer_is_kept_from_the_parser(stopped_by: int | None) -> None:
    made = going_on(return_token_ids=True)
    made.take(generated([15, 99], "stop", stopped_by))
    first = asked(made)["generate_chunk"]["choices"][0]
    assert (first["token_ids"], first["finish_reason"]) == ([15], None)
    told = made.derendered(parsed({"content": "x"}))
    last = asked(made)["generate_chunk"]["choices"][0]
    assert (last["token_ids"], last["finish_reason"]) == ([], "stop")
    told += made.derendered(parsed({}))
    assert [c["token_ids"] for c in choices(told)] == [[15], [99]]
    assert choices(told)[-1]["stop_reason"] == stopped_by
    assert made.done


@pytest.mark.parametrize(
    ("reason", "calls", "told"),
    [
        ("stop", (), "stop"),
        ("stop", ("c",), "tool_calls"),
        ("length", ("c",), "length"),
        ("length", (), "length"),
    ],
)
def test_only_an_answer_that_ended_by_itself_ends_with_tool_calls(
    reason: str, calls: tuple[str, ...], told: str
) -> None:
    made = going_on(*TOLD[:3])
    made.take(generated([99], reason))
    asked(made)
    (choice,) = choices(made.derendered(parsed({"content": "x"}, *calls)))
    assert choice["finish_reason"] == told


def test_at_its_limit_only_the_parser_is_asked_for_what_it_holds_back() -> None:
    made = seam()
    made.lost()
    assert made.rendered(rendering(sampling={"max_tokens": 5})) is None
    last = asked(made)["generate_chunk"]["choices"][0]
    assert (last["token_ids"], last["finish_reason"]) == ([], "length")
    out = made.derendered(parsed(call(0, arguments="}"), "call-0"))
    assert choices(out)[0]["delta"]["tool_calls"][0]["function"] == {"arguments": "}"}
    assert out.endswith(b"data: [DONE]\n\n")
    assert asked(made) is None


def test_an_answer_that_had_ended_needs_only_its_end() -> None:
    made = seam(*TOLD, chunk({}, [99], "tool_calls"), stream_options={"include_usage": True})
    rest = made.lost()
    assert isinstance(rest, Rest)
    assert b'"completion_tokens":6' in rest.data
    assert rest.data.endswith(b"data: [DONE]\n\n")


def test_nothing_is_told_where_the_parser_holds_back() -> None:
    made = going_on()
    made.take(generated([15]))
    asked(made)
    assert made.derendered(parsed({})) == b""


def test_what_the_parser_does_not_say_is_left_out() -> None:
    made = going_on()
    made.take(generated([15]))
    asked(made)
    began = {"id": None, "type": None, "index": 0, "function": {"name": None, "arguments": "x"}}
    (choice,) = choices(made.derendered(parsed({"tool_calls": [began]}, "call-0")))
    assert choice["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}


@pytest.mark.parametrize(
    "data",
    [
        event({"error": {"message": "EngineCore died"}}),
        generated([], "abort"),
        b"data: [DONE]\n\n",
        event({"choices": [{"index": 0}]}),
    ],
)
def test_what_is_generated_and_breaks_is_lost_again(data: bytes) -> None:
    made = going_on()
    with pytest.raises(Broken):
        made.take(data)


def test_a_stream_with_text_that_has_no_ids_is_not_gone_on_with() -> None:
    made = seam(
        *TOLD,
        event(
            {
                "id": "x",
                "created": 7,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"reasoning": "b"},
                        "finish_reason": None,
                        "token_ids": None,
                    }
                ],
            }
        ),
    )
    with pytest.raises(Unreadable, match="without token ids"):
        made.lost()


EMPTY = b'data: {"choices":[{"delta":{},"finish_reason":null,"token_ids":[7]}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop","token_ids":[7]}]}\n\n'
WORD = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null,"token_ids":[7]}]}\n\n'
QUOTED = rb'data: {"delta":{"content":"\"delta\":{}, \"finish_reason\":null"}}' + b"\n\n"


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ((EMPTY,), ()),
        ((WORD,), (WORD,)),
        ((END,), (END,)),
        ((QUOTED,), (QUOTED,)),
        ((EMPTY, WORD, EMPTY, EMPTY, END), (WORD, END)),
        ((WORD, EMPTY), (WORD,)),
    ],
)
def test_only_events_that_tell_nothing_are_dropped_however_many_come_at_once(
    events: tuple[bytes, ...], left: tuple[bytes, ...]
) -> None:
    hidden = b"".join(left).replace(b"[7]", b"null")
    assert without_ids_and_empty(b"".join(events)) == hidden
