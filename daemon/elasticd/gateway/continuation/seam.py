"""A stream that goes on elsewhere: what the next replica is asked, and what its answer becomes.

For streams without a parser: prompt and emitted ids are the prompt of a text completion, whose ids
alone are used. Pure: bytes in, bytes out; the dispatcher finds the replicas and moves the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.generated import Step, steps_of
from elasticd.gateway.continuation.kept import Broken, KeptStream, SoFar, events_of
from elasticd.gateway.continuation.record import Told, Unreadable, read_told
from elasticd.gateway.continuation.terms import Kind, Terms
from elasticd.gateway.continuation.text import OwnText, Stops

PATH = "/v1/completions"
"""Where an answer goes on."""

MARK = b": continued on another replica\n\n"
"""An SSE comment: clients pass over it, people who look for the seam find it."""


@dataclass(frozen=True, slots=True)
class Rest:
    """All that a client still lacks: nothing needs to be asked for it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Question:
    """The body of a request to `PATH` on a replica of the same spec."""

    body: bytes


class Seam(KeptStream):
    """One streamed answer over all its replicas. `keep` while the first one lives, then `lost`."""

    __slots__ = ("_sent", "_text")

    def __init__(self, terms: Terms, facts: EngineFacts) -> None:
        super().__init__(terms, facts)
        self._text: OwnText | None = None
        self._sent = 0

    def lost(self) -> Rest | Question:
        """The replica is no more. Raises `Unreadable` where the stream cannot go on."""
        self.losses += 1
        if self._told is None:
            self._told = read_told(self._terms.kind, self._all_kept(), self._facts.vocabulary)
        told = self._told
        if told.finish is not None:
            return Rest(self._end(told))
        if self._text is None:
            self._text, self._sent = self._own_text(told), len(told.text)
        if len(told.ids) >= self._budget(told):
            told.finish = "length"
            return Rest(self._piece(told, "length", None, []) + self._end(told))
        return Question(json.dumps(self._question(told), separators=(",", ":")).encode())

    def rehearse(self, kept: SoFar) -> None:
        """Raises `Unreadable` if the stream could not go on after what is kept. Changes nothing."""
        told = read_told(self._terms.kind, events_of(kept), self._facts.vocabulary)
        if told.finish is None:
            self._own_text(told)

    def feed(self, data: bytes) -> bytes:
        """Whole events of the replica that goes on, as the client's own stream would have them.

        Once `done`, the exchange is to be left, whether it has ended or not. Raises `Broken`, and
        then nothing of them is told.
        """
        try:
            return b"".join(self._fed(data))
        except Unreadable as bad:
            self._text = None  # what is not told now cannot be made good: it goes on nowhere
            raise Broken(str(bad)) from bad

    def _fed(self, data: bytes) -> Iterator[bytes]:
        told = self._told
        assert told is not None
        left = self._budget(told) - len(told.ids)
        for step in [] if self.done else steps_of(data, self._facts.vocabulary, left):
            told.fingerprint = step.fingerprint or told.fingerprint
            yield self._with(told, step)
            if self.done:
                break

    def _own_text(self, told: Told) -> OwnText:
        terms = self._terms
        stops = Stops(terms.stop, terms.include_stop, terms.min_tokens)
        text = OwnText(self._facts.tokenizer, told.prompt, told.ids, stops)
        if text.shown(finished=False) != told.text:
            raise Unreadable("its text is not the text of its token ids")
        return text

    def _budget(self, told: Told) -> int:
        """Tokens of the whole answer at most, as the engine counted them."""
        return self._facts.budget(self._terms.max_tokens, len(told.prompt))

    def _question(self, told: Told) -> dict[str, Any]:
        emitted = len(told.ids)
        return {
            **self._terms.sampling,
            "model": told.model,
            "prompt": [*told.prompt, *told.ids],
            "stream": True,
            "return_token_ids": True,
            "max_tokens": self._budget(told) - emitted,
            "min_tokens": max(0, self._terms.min_tokens - emitted),
        }

    def _with(self, told: Told, step: Step) -> bytes:
        text, ids, reason, stopped_by = self._text, step.ids, step.reason, step.stopped_by
        assert text is not None
        taken: list[int] = []
        for at, token_id in enumerate(ids, 1):
            taken.append(token_id)
            if step.ended_by_token and at == len(ids) and not self._terms.include_stop:
                text.skip()
            elif (string := text.add(token_id)) is not None:
                reason, stopped_by = "stop", string
                break
        told.ids += taken
        told.finish = reason
        out = self._piece(told, reason, stopped_by, taken)
        return out if reason is None else out + self._end(told)

    def _news(self) -> str:
        """Text that the client has not been shown yet, and may be."""
        assert self._text is not None
        assert self._told is not None
        shown = self._text.shown(finished=self._told.finish is not None)
        new, self._sent = shown[self._sent :], max(self._sent, len(shown))
        return new

    def _piece(self, told: Told, reason: str | None, stopped_by: Any, ids: list[int]) -> bytes:
        terms, text = self._terms, self._news()
        choice: dict[str, Any] = {"index": 0}
        if terms.kind is Kind.CHAT:
            choice |= {"delta": {"content": text}, "logprobs": None, "finish_reason": reason}
            if reason is not None:
                choice["stop_reason"] = stopped_by
        else:
            choice |= {"text": text, "logprobs": None, "finish_reason": reason}
            choice |= {"stop_reason": stopped_by, "prompt_token_ids": None}
        choice["token_ids"] = ids if terms.wants_ids else None
        return self._event(told, choice)
