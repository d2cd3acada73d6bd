"""What a client has been told so far, read from the bytes of its stream once its replica is lost.

While all is well nothing is parsed: the events are kept as they came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from elasticd.gateway.continuation.terms import Kind

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


def read_told(kind: Kind, data: bytes) -> Told:
    """Reads whole events. Raises `Unreadable` where ids are missing."""
    told = Told()
    _read(told, data, partial(_text_of, told, kind))
    return told


def read_parsed(data: bytes) -> ParsedTold:
    """The same for a chat with a parser on its stream, whose deltas need not be kept."""
    told = ParsedTold()
    _read(told, data, partial(_calls_of, told))
    return told


def _read(told: Told, data: bytes, take: Callable[[dict[str, Any]], bool]) -> None:
    for document in documents(data):
        if document is None:
            told.done = True
            continue
        try:
            _take(told, document, take)
        except (KeyError, TypeError, ValueError, AttributeError) as bad:
            raise Unreadable(f"an event is not as expected: {bad!r}") from bad
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
            document = json.loads(payload)
        except ValueError as bad:
            raise Unreadable(f"an event is no JSON: {bad}") from bad
        if not isinstance(document, dict):
            raise Unreadable("an event is no JSON object")
        yield document


def _take(told: Told, document: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
    told.id, told.created, told.model = (document[n] for n in ("id", "created", "model"))
    told.fingerprint = document.get("system_fingerprint") or told.fingerprint
    choices = document["choices"]
    if not choices:
        told.usage = told.usage or document.get("usage") is not None
        return
    (choice,) = choices
    told.prompt = told.prompt or tuple(_prompt_ids(document, choice))
    if take(choice) and not choice.get("token_ids"):
        raise Unreadable("an event has text without token ids")
    told.ids += choice.get("token_ids") or ()
    told.finish = choice.get("finish_reason") or told.finish


def _text_of(told: Told, kind: Kind, choice: dict[str, Any]) -> bool:
    text = choice["delta"].get("content") if kind is Kind.CHAT else choice["text"]
    told.text += text or ""
    return bool(text)


def _calls_of(told: ParsedTold, choice: dict[str, Any]) -> bool:
    """Nothing of it may be unknown: what the parser begins next depends on it."""
    delta, ids = choice["delta"], choice.get("token_ids")
    for call in delta.get("tool_calls") or ():
        told.tools = True
        if call.get("id") is not None and call["index"] >= len(told.tool_ids):
            told.tool_ids.append(call["id"])
    if ids:
        told.chunks.append(len(ids))
    return any(value for name, value in delta.items() if name != "role")


def _prompt_ids(document: dict[str, Any], choice: dict[str, Any]) -> list[int]:
    return document.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
