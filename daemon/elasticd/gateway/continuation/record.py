"""What a client has been told so far, read from the bytes of its stream once its replica is lost.

While all is well nothing is parsed: the events are kept as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
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


def read_told(kind: Kind, data: bytes) -> Told:
    """Reads whole events. Raises `Unreadable` where ids are missing."""
    told = Told()
    for document in documents(data):
        if document is None:
            told.done = True
        else:
            _take(told, kind, document)
    if not told.id or not told.prompt:
        raise Unreadable("its stream does not name the ids of its prompt")
    return told


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


def _take(told: Told, kind: Kind, document: dict[str, Any]) -> None:
    try:
        told.id, told.created, told.model = (document[n] for n in ("id", "created", "model"))
        choices = document["choices"]
        if not choices:
            told.usage = told.usage or document.get("usage") is not None
            return
        (choice,) = choices
        told.prompt = told.prompt or tuple(_prompt_ids(document, choice))
        text = choice["delta"].get("content") if kind is Kind.CHAT else choice["text"]
        ids = choice.get("token_ids")
        told.finish = choice.get("finish_reason") or told.finish
    except (KeyError, TypeError, ValueError, AttributeError) as bad:
        raise Unreadable(f"an event is not as expected: {bad!r}") from bad
    if text and not ids:
        raise Unreadable("an event has text without token ids")
    told.text += text or ""
    told.ids += ids or ()


def _prompt_ids(document: dict[str, Any], choice: dict[str, Any]) -> list[int]:
    return document.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
