"""What both ways of going on have in common: the stream as it came, and the end it must have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.ids import without_ids
from elasticd.gateway.continuation.record import DONE, Told
from elasticd.gateway.continuation.terms import Kind, Terms
from elasticd.gateway.sse import event

_ERROR, _ABORT = b'data: {"error"', b'"finish_reason":"abort"'
"""How vLLM ends a stream that it could not finish; within a JSON string the quotes were escaped."""


class Broken(Exception):
    """The answer that goes on has broken off, too, or is none."""


class KeptStream:
    """One streamed answer over all its replicas: kept while its first one lives.

    `losses`: of replicas, so far. `done`: the client has, or is just given, all of it.
    """

    def __init__(self, terms: Terms, facts: EngineFacts) -> None:
        self._terms = terms
        self._facts = facts
        self._kept: list[bytes] = []
        self._told: Told | None = None
        self.hide: Callable[[bytes], bytes] | None = None if terms.wants_ids else without_ids
        """What makes of an event with ids the one that the client asked for."""
        self.done = False
        self.losses = 0

    @property
    def emitted(self) -> int:
        """About how many tokens the client has: events, where several tokens may be in one."""
        return len(self._told.ids) if self._told is not None else len(self._kept)

    @property
    def most(self) -> int | None:
        """Tokens of the answer at most, as far as that is plain without a look at its prompt."""
        asked = self._terms.max_tokens
        return self._facts.max_tokens if asked is None else asked

    @property
    def is_whole(self) -> bool:
        """Whether the first replica's stream has come to its end, and to no other."""
        return self._kept[-1].rstrip().endswith(b"data: " + DONE) if self._kept else False

    def keep(self, data: bytes) -> None:
        """Whole events as they come from the first replica, with the ids in them. Raises `Broken`
        where they say that it failed."""
        if _ERROR in data or _ABORT in data:
            raise Broken("an error in mid-stream")
        self._kept.append(data)

    def _all_kept(self) -> bytes:
        """Read once; it is not needed any more then."""
        data = b"".join(self._kept)
        self._kept.clear()
        return data

    def _end(self, told: Told) -> bytes:
        """What comes after the last event of the answer itself."""
        self.done = True
        out = b""
        if (self._terms.usage or self._facts.always_usage) and not told.usage and not told.done:
            document = {**self._head(told), "choices": [], "usage": self._usage(told)}
            out += packed(document | self._fingerprint(told))
        if not told.done:
            out += event(DONE)
        return out

    def _event(self, told: Told, choice: dict[str, Any]) -> bytes:
        """One event of the client's stream with this choice, told with the answer so far."""
        terms = self._terms
        document = {**self._head(told), "choices": [choice]}
        if terms.running_usage or self._facts.always_usage:
            document["usage"] = self._usage(told)
        if choice["finish_reason"] and not (terms.usage or self._facts.always_usage):
            document |= self._fingerprint(told)
        return packed(document)

    def _fingerprint(self, told: Told) -> dict[str, str]:
        """On the last event that is told, as the engine has it."""
        own = told.fingerprint or self._facts.fingerprint
        return {} if own is None else {"system_fingerprint": own}

    def _head(self, told: Told) -> dict[str, Any]:
        name = "chat.completion.chunk" if self._terms.kind is Kind.CHAT else "text_completion"
        return {"id": told.id, "object": name, "created": told.created, "model": told.model}

    def _usage(self, told: Told) -> dict[str, Any]:
        prompt, completion = len(told.prompt), len(told.ids)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }


def packed(document: dict[str, Any]) -> bytes:
    """A document as an event."""
    return event(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
