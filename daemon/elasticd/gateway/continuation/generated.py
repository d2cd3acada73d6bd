"""What a replica generates that goes on with an answer: all of it is checked here, as it comes in.

It may be any program at all that has a replica's address now, or one whose memory fails. What it
says is believed as far as it could be true; anything else is the loss of that replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.gateway.continuation.checked import ids_of, maybe_text
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.record import Unreadable, documents

_ENDS = frozenset(("stop", "length", "repetition"))
_GIVEN_UP = frozenset(("abort", "error"))
"""vLLM's reasons for the end of an answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event. `reason`: of the end, on the last one; `stopped_by`: a string, or a token's id."""

    ids: list[int]
    reason: str | None
    stopped_by: str | int | None
    fingerprint: str | None

    @property
    def ended_by_token(self) -> bool:
        """The last id has no text then."""
        return self.reason == "stop" and not isinstance(self.stopped_by, str)


def steps_of(data: bytes, below: int, left: int) -> list[Step]:
    """Whole events, up to the last one of the answer; ids are less than `below`, and at most `left`
    of them. Raises `Broken` before anything is used of what came with it.

    An engine that repeats its prompt cannot be told from an answer that does: only the number of
    ids is known, so no more than the client asked for reach it.
    """
    steps: list[Step] = []
    try:
        for document in documents(data):
            if document is None:
                raise Broken("the answer ended without a reason")
            if (step := _step(document, below)) is None:
                continue
            left -= len(step.ids)
            if left < 0:
                raise Broken("more tokens than it was asked for")
            steps.append(step)
            if step.reason is not None:
                break
    except Unreadable as bad:
        raise Broken(str(bad)) from bad
    return steps


def _step(document: dict[str, Any], below: int) -> Step | None:
    """`None`: it is not of the answer."""
    if "error" in document:
        raise Broken(f"an error in mid-stream: {document['error']!r:.300}")
    if not document.get("choices"):
        return None
    try:
        (choice,) = document["choices"]
        step = Step(
            ids_of(choice["token_ids"], below),
            maybe_text(choice["finish_reason"]),
            _stopped_by(choice.get("stop_reason"), below),
            maybe_text(document.get("system_fingerprint")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as bad:
        raise Broken(f"an event is not as expected: {bad!r:.300}") from bad
    if step.reason in _GIVEN_UP:
        raise Broken("the engine gave the answer up")
    if step.reason is not None and step.reason not in _ENDS:
        raise Broken(f"no engine ends an answer like this: {step.reason!r:.100}")
    return step


def _stopped_by(value: object, below: int) -> str | int | None:
    if value is None or isinstance(value, str):
        return value
    (token_id,) = ids_of([value], below)
    return token_id
