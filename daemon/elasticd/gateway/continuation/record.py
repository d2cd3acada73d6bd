"""What a client has been told so far, read from the bytes of its stream once its replica is lost.

While all is well nothing is parsed: the events are kept as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from elasticd.gateway.continuation.checked import ids_of, maybe_text, text_of, whole_of
from elasticd.gateway.continuation.terms import Kind
from elasticd.weights.foreign import read_json

DONE = b"[DONE]"


class Unreadable(Exception):
    """The stream does not tell what it takes to go on with it."""


@dataclass(slots=True)
class Told:
    """`prompt` and `ids`: token ids. `text`: of the answer. `finish`: the reason, once it is told.

    `usage`: the sum at the end has been told. `done`: so has the end itself.
    """

    id: str = ""
    created: int = 0
    model: str = ""
    fingerprint: str | None = None
    prompt: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    usage: bool = False
    done: bool = False


@dataclass(slots=True)
class ParsedTold(Told):
    """Of a stream with a parser on it. `chunks`: how many ids came together, in order. `tool_ids`:
    of the calls begun so far. `tools`: a call has begun.
    """

    chunks: list[int] = field(default_factory=list)
    tool_ids: list[str] = field(default_factory=list)
    tools: bool = False


def read_told(kind: Kind, data: bytes, vocabulary: int) -> Told:
    """Reads whole events. Raises `Unreadable` where ids are missing, or not of the vocabulary."""
    told = Told()
    _read(told, data, vocabulary, partial(_text_of, told, kind))
    return told


def read_parsed(data: bytes, vocabulary: int) -> ParsedTold:
    """The same for a chat with a parser on its stream, whose deltas need not be kept."""
    told = ParsedTold()
    _read(told, data, vocabulary, partial(_calls_of, told))
    return told


_Take = Callable[[dict[str, Any], list[int]], bool]
"""Of a choice with these ids; whether it has something that the client is shown."""


def _read(told: Told, data: bytes, vocabulary: int, take: _Take) -> None:
    for document in documents(data):
        if document is None:
            told.done = True
            continue
        try:
            _read_one(told, document, vocabulary, take)
        except (KeyError, TypeError, ValueError, AttributeError) as bad:
            raise Unreadable(f"an event is not as expected: {bad!r:.300}") from bad
    if not told.id or not told.prompt:
        raise Unreadable("its stream does not name the ids of its prompt")


def documents(data: bytes) -> Iterator[dict[str, Any] | None]:
    """The JSON objects of whole events; `None` for the end. Raises `Unreadable`."""
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == DONE:
            yield None
            continue
        try:
            document = read_json(payload)
        except ValueError as bad:
            raise Unreadable(f"an event is no JSON: {bad}") from bad
        if not isinstance(document, dict):
            raise Unreadable("an event is no JSON object")
        yield document


def _read_one(told: Told, document: dict[str, Any], vocabulary: int, take: _Take) -> None:
    told.id, told.model = text_of(document["id"]), text_of(document["model"])
    told.created = whole_of(document["created"])
    told.fingerprint = maybe_text(document.get("system_fingerprint")) or told.fingerprint
    choices = document["choices"]
    if not choices:
        told.usage = told.usage or document.get("usage") is not None
        return
    (choice,) = choices
    told.prompt = told.prompt or tuple(ids_of(_prompt_ids(document, choice), vocabulary))
    ids = ids_of(choice.get("token_ids"), vocabulary)
    if take(choice, ids) and not ids:
        raise Unreadable("an event has text without token ids")
    told.ids += ids
    told.finish = maybe_text(choice.get("finish_reason")) or told.finish


def _text_of(told: Told, kind: Kind, choice: dict[str, Any], ids: list[int]) -> bool:
    text = choice["delta"].get("content") if kind is Kind.CHAT else choice["text"]
    told.text += maybe_text(text) or ""
    return bool(text)


def _calls_of(told: ParsedTold, choice: dict[str, Any], ids: list[int]) -> bool:
    """Nothing of it may be unknown: what the parser begins next depends on it."""
    delta = choice["delta"]
    for call in delta.get("tool_calls") or ():
        told.tools = True
        begun = maybe_text(call.get("id"))
        if begun is not None and whole_of(call["index"]) >= len(told.tool_ids):
            told.tool_ids.append(begun)
    if ids:
        told.chunks.append(len(ids))
    return any(value for name, value in delta.items() if name != "role")


def _prompt_ids(document: dict[str, Any], choice: dict[str, Any]) -> object:
    return document.get("prompt_token_ids") or choice.get("prompt_token_ids")
