"""Cut anywhere, a stream that goes on elsewhere is the stream that was not cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.continuation.seam import Question, Rest, Seam
from elasticd.gateway.continuation.terms import Kind, Terms
from elasticd.gateway.continuation.text import OwnText
from tests.gateway.continuation.engine import (
    ANSWER,
    PROMPT,
    answer_ids,
    events,
    facts,
    prompt_ids,
    run,
    terms,
)

CASES: list[tuple[str, Kind, dict[str, Any]]] = [
    ("chat", Kind.CHAT, {}),
    ("completion", Kind.COMPLETION, {}),
    ("usage", Kind.CHAT, {"stream_options": {"include_usage": True}}),
    ("a stop string", Kind.CHAT, {"stop": "STOP here"}),
    ("a stop string in a completion", Kind.COMPLETION, {"stop": ["nowhere", "楽しい。"]}),
    ("a stop string of one character", Kind.CHAT, {"stop": ["👧"]}),
    ("the one that is complete first", Kind.CHAT, {"stop": ["END of 2", "END"]}),
    (
        "a stop string that is shown",
        Kind.CHAT,
        {"stop": "END of", "include_stop_str_in_output": True},
    ),
    ("a stop string too early", Kind.CHAT, {"stop": ["Sure", "done"], "min_tokens": 9}),
    ("a limit", Kind.CHAT, {"max_tokens": 23}),
    ("the newer limit", Kind.CHAT, {"max_tokens": 900, "max_completion_tokens": 11}),
]
EACH = pytest.mark.parametrize(
    ("kind", "fields"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)


def whole(asked: Terms) -> list[bytes]:
    return events(asked.kind, run(asked, answer_ids()), len(prompt_ids()) if asked.usage else None)


def meaning(stream: bytes) -> tuple[str, list[int], list[Any], Any, int]:
    """Text, ids, reasons, usage, and how often it ended."""
    text, ids, reasons, usage, ends = "", [], [], None, 0
    for line in stream.split(b"\n\n"):
        if line == b"data: [DONE]":
            ends += 1
        elif line.startswith(b"data: "):
            document = json.loads(line[6:])
            usage = document.get("usage") or usage
            for choice in document["choices"]:
                text += choice["delta"]["content"] if "delta" in choice else choice["text"]
                ids += choice.get("token_ids") or []
                if choice["finish_reason"]:
                    reasons.append((choice["finish_reason"], choice.get("stop_reason")))
    return text, ids, reasons, usage, ends


def go_on(seam: Seam, asked: Terms, todo: Rest | Question, upto: int | None = None) -> bytes:
    """The next replica's part, up to so many events."""
    if isinstance(todo, Rest):
        return todo.data
    question = json.loads(todo.body)
    done = len(question["prompt"]) - len(prompt_ids())
    assert question["prompt"] == [*prompt_ids(), *answer_ids()[:done]]
    assert "stop" not in question
    limited = terms(Kind.COMPLETION, max_tokens=question["max_tokens"])
    rest = answer_ids()[done:]
    theirs = events(Kind.COMPLETION, run(limited, rest, answer_ids()[:done]))
    out = b""
    for event in theirs[:upto]:
        if not seam.done:
            out += seam.feed(event)
    return out


@EACH
def test_cut_after_any_event_it_is_the_same_answer(kind: Kind, fields: dict[str, Any]) -> None:
    asked = terms(kind, return_token_ids=True, **fields)
    full = whole(asked)
    told = meaning(b"".join(full))
    assert told[4] == 1
    for cut in range(1, len(full)):
        seam = Seam(asked, facts())
        for event in full[:cut]:
            seam.keep(event)
        got = b"".join(full[:cut]) + go_on(seam, asked, seam.lost())
        assert meaning(got) == told, cut
        assert seam.done


@EACH
def test_cut_twice_it_is_the_same_answer(kind: Kind, fields: dict[str, Any]) -> None:
    asked = terms(kind, return_token_ids=True, **fields)
    full = whole(asked)
    told = meaning(b"".join(full))
    for cut in range(1, len(full) - 1, 3):
        for more in (1, 2, 5):
            seam = Seam(asked, facts())
            for event in full[:cut]:
                seam.keep(event)
            got = b"".join(full[:cut]) + go_on(seam, asked, seam.lost(), more)
            if not seam.done:
                got += go_on(seam, asked, seam.lost())
            assert meaning(got) == told, (cut, more)


def test_the_prompt_is_never_told_although_the_engine_repeats_it() -> None:
    asked = terms()
    seam = Seam(asked, facts())
    for event in whole(asked)[:9]:
        seam.keep(event)
    assert isinstance(seam.lost(), Question)
    choice = {"index": 0, "text": PROMPT + ANSWER, "finish_reason": None, "stop_reason": None}
    chunk = {"choices": [{**choice, "token_ids": answer_ids()[8:9]}]}
    out = seam.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert len(meaning(out)[0]) <= 2


def test_several_ids_in_one_event_end_at_the_stop_string() -> None:
    asked = terms(stop="END", return_token_ids=True)
    told = meaning(b"".join(whole(asked)))
    full = whole(asked)
    seam = Seam(asked, facts())
    for event in full[:5]:
        seam.keep(event)
    assert isinstance(seam.lost(), Question)
    choice = {"index": 0, "text": "", "finish_reason": None, "stop_reason": None}
    chunk = {"choices": [{**choice, "token_ids": answer_ids()[4:]}]}
    out = seam.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert meaning(b"".join(full[:5]) + out) == told
    assert seam.done


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_model_len": 50}, 50 - len(prompt_ids()) - 4),
        ({"max_tokens": 20}, 16),
        ({"most_tokens": 10, "max_tokens": 20}, 6),
    ],
)
def test_without_a_limit_of_the_request_the_engines_holds(
    limits: dict[str, int], left: int
) -> None:
    asked = terms(max_tokens=None)
    seam = Seam(asked, facts(**limits))
    for event in whole(asked)[:5]:
        seam.keep(event)
    todo = seam.lost()
    assert isinstance(todo, Question)
    assert json.loads(todo.body)["max_tokens"] == left


def test_what_samples_is_asked_for_as_the_client_did() -> None:
    asked = terms(temperature=0.3, seed=5, logit_bias={"7": -1.5}, min_tokens=9, stop="x")
    seam = Seam(asked, facts())
    for event in whole(asked)[:4]:
        seam.keep(event)
    todo = seam.lost()
    assert isinstance(todo, Question)
    question = json.loads(todo.body)
    assert (question["temperature"], question["seed"]) == (0.3, 5)
    assert question["logit_bias"] == {"7": -1.5}
    assert question["min_tokens"] == 6
    assert question["return_token_ids"] is True


@pytest.mark.parametrize(
    "broken",
    [
        b'data: {"error": {"message": "EngineCore died"}}\n\ndata: [DONE]\n\n',
        b'data: {"choices": [{"index": 0, "token_ids": [], "finish_reason": "abort"}]}\n\n',
        b"data: [DONE]\n\n",
        b"data: {no json}\n\n",
        b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n',
    ],
)
def test_what_goes_on_and_breaks_is_lost_again_and_nothing_of_it_is_told(broken: bytes) -> None:
    asked = terms()
    seam = Seam(asked, facts())
    for event in whole(asked)[:4]:
        seam.keep(event)
    first = seam.lost()
    with pytest.raises(Broken):
        seam.feed(broken)
    assert seam.lost() == first


def generated(ids: list[int], **choice: Any) -> bytes:
    whole = {"index": 0, "text": "", "finish_reason": None, "stop_reason": None, **choice}
    return b"data: " + json.dumps({"choices": [{**whole, "token_ids": ids}]}).encode() + b"\n\n"


def test_nothing_of_a_piece_that_breaks_is_told_and_nothing_of_it_is_missing_later() -> None:
    asked = terms(return_token_ids=True)
    full = whole(asked)
    seam = Seam(asked, facts())
    for event in full[:5]:
        seam.keep(event)
    first = seam.lost()
    with pytest.raises(Broken):
        seam.feed(generated(answer_ids()[4:7]) + b'data: {"error": {"message": "x"}}\n\n')
    again = seam.lost()
    assert again == first
    got = b"".join(full[:5]) + go_on(seam, asked, again)
    assert meaning(got) == meaning(b"".join(full))


def test_who_gives_more_tokens_than_the_client_asked_for_is_lost_again() -> None:
    asked = terms(max_tokens=12, return_token_ids=True)
    seam = Seam(asked, facts())
    for event in whole(asked)[:6]:
        seam.keep(event)
    seam.lost()
    out = b"".join(seam.feed(generated([token_id])) for token_id in answer_ids()[5:12])
    with pytest.raises(Broken, match="more tokens"):
        seam.feed(generated([1]))
    rest = seam.lost()
    assert isinstance(rest, Rest), "the client has all that it asked for"
    got = b"".join(whole(asked)[:6]) + out + rest.data
    assert meaning(got)[:3] == meaning(b"".join(whole(asked)))[:3]


def test_who_gives_the_prompt_once_more_gives_no_more_tokens_for_it() -> None:
    asked = terms(max_tokens=12)
    seam = Seam(asked, facts())
    for event in whole(asked)[:6]:
        seam.keep(event)
    seam.lost()
    with pytest.raises(Broken, match="more tokens"):
        seam.feed(generated([*prompt_ids(), *answer_ids()[:5], *answer_ids()[5:12]]))
    assert isinstance(seam.lost(), Question)


def test_half_a_character_is_told_as_an_escape() -> None:
    seam = Seam(terms(), facts())
    for event in whole(terms())[:6]:
        seam.keep(event)
    seam.lost()
    out = seam.feed(generated([], finish_reason="stop", stop_reason="\ud800"))
    assert b'"stop_reason":"\\ud800"' in out
    assert seam.done


def test_ids_that_cannot_be_decoded_go_on_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: OwnText, token_id: int) -> None:
        raise Unreadable("its ids cannot be decoded")

    seam = Seam(terms(), facts())
    for event in whole(terms())[:6]:
        seam.keep(event)
    seam.lost()
    seam.feed(generated(answer_ids()[5:7]))
    monkeypatch.setattr(OwnText, "add", fails)
    with pytest.raises(Broken, match="decoded"):
        seam.feed(generated(answer_ids()[7:8]))
    with pytest.raises(Unreadable):
        seam.lost()


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "EngineCore died"}}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n',
    ],
)
def test_an_end_that_is_none_is_a_loss(event: bytes) -> None:
    seam = Seam(terms(), facts())
    with pytest.raises(Broken):
        seam.keep(event)


def test_words_of_an_answer_are_no_error() -> None:
    asked = terms()
    seam = Seam(asked, facts())
    text = 'data: {"error" and "finish_reason":"abort"'
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    seam.keep(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def test_text_that_is_not_that_of_its_ids_is_not_continued() -> None:
    asked = terms()
    seam = Seam(asked, facts())
    for event in whole(asked)[:6]:
        seam.keep(event.replace(b"Sure", b"Surf"))
    with pytest.raises(Unreadable, match="not the text"):
        seam.rehearse(seam.so_far())
    with pytest.raises(Unreadable, match="not the text"):
        seam.lost()


@EACH
def test_a_rehearsal_changes_nothing(kind: Kind, fields: dict[str, Any]) -> None:
    asked = terms(kind, **fields)
    seam, out = Seam(asked, facts()), b""
    for event in whole(asked)[:6]:
        out += seam.keep(event)
        seam.rehearse(seam.so_far())
    out += go_on(seam, asked, seam.lost())
    assert meaning(out)[0] == meaning(b"".join(whole(asked)))[0]


def test_a_stream_without_ids_is_not_continued() -> None:
    asked = terms()
    seam = Seam(asked, facts())
    for event in whole(asked)[:6]:
        seam.keep(event.replace(b"token_ids", b"other"))
    with pytest.raises(Unreadable, match="ids"):
        seam.lost()
