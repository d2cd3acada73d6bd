"""What both ways of going on have in common: the stream as it came, and the end it must have."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.ids import without_ids
from elasticd.gateway.continuation.record import DONE, Told
from elasticd.gateway.continuation.terms import Kind, Terms
from elasticd.gateway.sse import event

ERROR, _ABORT = b'data: {"error"', b'"finish_reason":"abort"'
"""How vLLM ends a stream that it could not finish; within a JSON string the quotes were escaped."""


_SHRINK_AFTER = 512
"""Events after which those so far are compressed: a long answer would take megabytes."""


_AT_ONCE = 64
"""Events that are read in about a millisecond."""


class Broken(Exception):
    """The answer has broken off, or is none. `good`: the events before that, as the client is shown
    them."""

    def __init__(self, why: str, good: bytes = b"") -> None:
        super().__init__(why)
        self.good = good


SoFar = tuple[list[bytes], list[bytes]]
"""Compressed events, and those after them."""


class KeptStream:
    """One streamed answer over all its replicas: kept while its first one lives.

    `losses`: of replicas, so far. `done`: the client has, or is just given, all of it.
    """

    __slots__ = ("_facts", "_kept", "_shrunk", "_terms", "_told", "done", "hide", "losses")

    def __init__(self, terms: Terms, facts: EngineFacts) -> None:
        self._terms = terms
        self._facts = facts
        self._kept: list[bytes] = []
        self._shrunk: list[bytes] = []
        self._told: Told | None = None
        self.hide: Callable[[bytes], bytes] | None = None if terms.wants_ids else without_ids
        """What makes of an event with ids the one that the client asked for."""
        self.done = False
        self.losses = 0

    @property
    def emitted(self) -> int:
        """About how many tokens the client has: events, where several tokens may be in one."""
        if self._told is not None:
            return len(self._told.ids)
        return len(self._shrunk) * _SHRINK_AFTER + len(self._kept)

    @property
    def is_long(self) -> bool:
        """Whether reading it after a loss takes so long that others would notice."""
        return self._told is None and self.emitted > _AT_ONCE

    @property
    def most(self) -> int | None:
        """Tokens of the answer at most, as far as that is plain without a look at its prompt."""
        asked = self._terms.max_tokens
        return self._facts.max_tokens if asked is None else asked

    @property
    def is_whole(self) -> bool:
        """Whether the first replica's stream has come to its end, and to no other."""
        return self._kept[-1].rstrip().endswith(b"data: " + DONE) if self._kept else False

    def keep(self, data: bytes) -> bytes:
        """Whole events as they come from the first replica, with the ids in them; returns what the
        client is shown of them. Raises `Broken` where they say that it failed; what came before is
        kept."""
        hide = self.hide
        # `rfind` takes less than half the time of `in`; this is done for each token.
        if data.rfind(ERROR) >= 0 or data.rfind(_ABORT) >= 0:
            good = _before_failure(data)
            if len(good) < len(data):
                if good:
                    self._kept.append(good)
                raise Broken("an error in mid-stream", good if hide is None else hide(good))
        kept = self._kept
        kept.append(data)
        if len(kept) > _SHRINK_AFTER:
            self._shrink()
        return data if hide is None else hide(data)

    def _shrink(self) -> None:
        """All but the latest event, which may be the end: they are much alike, and shrink to a
        twentieth."""
        last = self._kept.pop()
        self._shrunk.append(zlib.compress(b"".join(self._kept), level=1))
        self._kept = [last]

    def so_far(self) -> SoFar:
        """What is kept now; to be read by `events_of`."""
        return [*self._shrunk], [*self._kept]

    def _all_kept(self) -> bytes:
        """Read once; it is not needed any more then."""
        data = events_of((self._shrunk, self._kept))
        self._shrunk.clear()
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


def events_of(kept: SoFar) -> bytes:
    """The events themselves. Takes long where they are many."""
    shrunk, latest = kept
    return b"".join((*map(zlib.decompress, shrunk), *latest))


def _before_failure(data: bytes) -> bytes:
    """The events before the first one by which an engine says that it failed. What it has against
    the request (4xx) is an answer, and no failure."""
    good = []
    for piece in data.replace(b"\r\n\r\n", b"\n\n").split(b"\n\n")[:-1]:
        if _ABORT in piece or (piece.startswith(ERROR) and not blames_request(piece)):
            break
        good.append(piece + b"\n\n")
    return b"".join(good)


def blames_request(event: bytes) -> bool:
    """Whether an error event speaks of the request."""
    try:
        code = json.loads(event[len(b"data:") :])["error"].get("code")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return isinstance(code, int) and 400 <= code < 500


def packed(document: dict[str, Any]) -> bytes:
    """A document as an event."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        return event(text.encode())
    except UnicodeEncodeError:  # half a character, which only an escape can write
        return event(json.dumps(document, separators=(",", ":")).encode())
