"""A chat with a reasoning or tool parser on its stream that goes on elsewhere.

The next replica is asked three things. *Render*: the client's request as prompt ids and sampling
parameters, once. *Generate*: the ids that follow prompt and answer so far. *Derender*: what some
of these ids are in the client's stream; the parser has no memory between two such calls, so each is
told all ids before, and what of their meaning cannot be read from them. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import codecs
from typing import Any

from elasticd.gateway.continuation.derender import CannotDerender, Derender, as_json, delta_of
from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.generated import steps_of
from elasticd.gateway.continuation.ids import without_ids_and_empty
from elasticd.gateway.continuation.kept import Broken, KeptStream, SoFar, events_of
from elasticd.gateway.continuation.record import ParsedTold, Told, read_parsed
from elasticd.gateway.continuation.render import generate_body
from elasticd.gateway.continuation.seam import Rest
from elasticd.gateway.continuation.terms import Terms
from elasticd.json_fields import Fields
from elasticd.weights.foreign import read_json

RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"
REASONING = "/elasticd/reasoning"
"""Answered by the engine's guard."""


class ParsedSeam(KeptStream):
    """One streamed answer over all its replicas.

    `keep` while the first one lives. Then, for each further one: `lost`, `rendered`, and as long as
    it is not `done`: `take` what is generated, and ask each `question` for the ids so far, whose
    answer is `derendered`, after what there is to `count` was `counted`. Ids that no client has
    seen when a replica is lost are forgotten. `request`: the client's own, JSON.
    """

    __slots__ = (
        "_asked",
        "_derender",
        "_ends",
        "_last",
        "_left",
        "_new",
        "_pieces",
        "_reasoning",
        "_request",
    )

    _told: ParsedTold | None

    def __init__(self, terms: Terms, facts: EngineFacts, request: bytes) -> None:
        super().__init__(terms, facts)
        if not terms.wants_ids:
            self.hide = without_ids_and_empty
        self._request = request.removeprefix(codecs.BOM_UTF8)  # it becomes a part of others
        self._told = None
        self._derender: Derender | None = None
        self._left = 0
        self._new: list[int] = []
        self._last: tuple[str, Any, list[int]] | None = None
        self._asked: list[int] = []
        self._ends = False
        self._pieces: list[int] = []
        self._reasoning: int | None = None

    def lost(self) -> Rest | None:
        """The replica is no more; `None`: the next one is asked to render. Raises `Unreadable`
        where the stream cannot go on."""
        self.losses += 1
        if self._told is None:
            self._told = read_parsed(self._all_kept(), self._facts.vocabulary)
            self._pieces = [*self._told.chunks]
        self._new, self._last = [], None
        return Rest(self._end(self._told)) if self._told.finish is not None else None

    def rehearse(self, kept: SoFar, rendering: bytes) -> None:
        """Raises `Unreadable` if the stream could not go on after what is kept, and `Broken` where
        that cannot be told from this rendering. Changes nothing."""
        told = read_parsed(events_of(kept), self._facts.vocabulary)
        if told.finish is None:
            most = self._facts.budget(self._terms.max_tokens, len(told.prompt))
            generate_body(rendering, told.prompt, told.ids, most)

    def rendered(self, data: bytes) -> bytes | None:
        """The body that has the answer generated; `None`: all of it has been. Raises `Broken`, and
        `Unreadable` where this would be another answer."""
        told = self._told
        assert told is not None
        most = self._facts.budget(self._terms.max_tokens, len(told.prompt))
        body, self._left = generate_body(data, told.prompt, told.ids, most)
        if body is None:
            self._last = "length", None, []
        return body

    def take(self, data: bytes) -> None:
        """Whole events of what is generated. Raises `Broken`."""
        if self._last is not None:
            return
        for step in steps_of(data, self._facts.vocabulary, self._left):
            ids = step.ids
            self._left -= len(ids)
            if step.reason is not None:
                unseen = [ids.pop()] if step.ended_by_token and ids else []
                self._last = step.reason, step.stopped_by, unseen
            self._new += ids

    @property
    def is_generated(self) -> bool:
        """Whether nothing is left to take."""
        return self._last is not None

    def question(self) -> bytes | None:
        """The body that asks what the ids since the last one are; `None`: there are none."""
        told, last = self._told, self._last
        assert told is not None
        if self.done or (not self._new and last is None):
            return None
        if self._derender is None:
            self._derender = Derender(told.model, told.prompt, self._request)
        self._asked, self._new = self._new, []
        # The token that ended the answer has no text, and the parser is told of the end alone.
        self._ends = last is not None and not (last[2] and self._asked)
        reason = last[0] if last is not None and self._ends else None
        return self._derender.body(told, self._asked, reason)

    def count(self) -> bytes | None:
        """The body that asks how much of what is asked for, and all before, is reasoning; `None`:
        nobody wants to know."""
        terms, told = self._terms, self._told
        assert told is not None
        always = self._facts.always_usage
        if not (terms.running_usage or always or (terms.usage and self._ends)):
            return None
        if not self._facts.reasoning:
            return None
        ids = [*told.ids, *self._asked]
        since = [1] * (len(ids) - sum(self._pieces))  # as an engine gives them that is not in haste
        reason = self._last[0] if self._ends and self._last is not None else None
        lens = [*self._pieces, *since]
        question = {"prompt": told.prompt, "ids": ids, "lens": lens, "reason": reason}
        return b'{"request":%b,%b' % (self._request, as_json(question)[1:])

    def counted(self, data: bytes | None) -> None:
        """The answer to it; `None`: there is none, and usage tells nothing of it."""
        told = self._told
        assert told is not None
        try:
            count = None if data is None else Fields(read_json(data)).whole("reasoning_tokens")
        except ValueError:
            count = None
        possible = count is not None and count <= len(told.ids) + len(self._asked)
        self._reasoning = count if possible else None

    def derendered(self, data: bytes) -> bytes:
        """The answer to it as the client's stream would have it. Raises `Broken`."""
        told, terms = self._told, self._terms
        assert told is not None
        try:
            delta, told.tools, told.tool_ids = delta_of(data)
        except CannotDerender as bad:
            raise Broken(str(bad)) from bad
        ids, (reason, stopped_by, unseen) = self._asked, self._last or ("", None, [])
        told.ids += ids
        if ids:
            told.chunks.append(len(ids))
        if not self._ends:
            return self._piece(told, delta, ids) if delta or terms.wants_ids else b""
        told.ids += unseen
        # A call makes a "stop" its own; an answer that was cut off stays one.
        told.finish = "tool_calls" if told.tools and reason == "stop" else reason
        return self._piece(told, delta, [*ids, *unseen], stopped_by) + self._end(told)

    def _piece(
        self, told: ParsedTold, delta: dict[str, Any], ids: list[int], stopped_by: Any = None
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None}
        choice["finish_reason"] = told.finish
        if told.finish is not None:
            choice["stop_reason"] = stopped_by
        choice["token_ids"] = ids if self._terms.wants_ids else None
        return self._event(told, choice)

    def _usage(self, told: Told) -> dict[str, Any]:
        usage = super()._usage(told)
        if self._reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self._reasoning}
        return usage
