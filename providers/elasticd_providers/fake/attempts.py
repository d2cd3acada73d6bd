"""What became of every creation that was asked for, on disk: also for the next controller.

Where a cloud has no client tokens, the only guard against a second machine is to look for the first
by its name, and a machine may take a while to be found. So the time of asking is written down
before the call, and what the answer was after it. A call without a clear answer counts from its
end: until then the cloud may have made the machine.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elasticd.provider import Unavailable

_KEPT = 86_400.0
"""Seconds for which it is remembered that a node was given its machine."""


class Outcome(enum.StrEnum):
    """What the answer was. A refusal leaves nothing to be remembered."""

    UNCLEAR = "unclear"
    NONE_GIVEN = "none_given"  # a good answer, with no machine in it
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`asked_at`: wall clock in seconds, of the asking, or of the end of the call."""

    node_id: str
    asked_at: float
    outcome: Outcome = Outcome.UNCLEAR
    instance_id: str = ""


class Attempts:
    """The attempts of one pool, a file for each node. `wall` tells the wall clock in seconds.

    `steady` tells a clock that nobody sets: within one process it counts, too.
    """

    def __init__(
        self,
        directory: Path,
        wall: Callable[[], float],
        steady: Callable[[], float] | None = None,
    ) -> None:
        self._directory = directory
        self._wall = wall
        self._steady = steady
        self._asked: dict[str, float] = {}

    async def last(self, node_id: str) -> tuple[Attempt, float] | None:
        """The last attempt that is remembered, and its age in seconds."""
        attempt = await asyncio.to_thread(self._read, self._path(node_id))
        if attempt is not None and attempt.asked_at > self._wall():
            # The clock was set back since: the wait begins anew, for it would never be over.
            attempt = replace(attempt, asked_at=self._wall())
            await asyncio.to_thread(self._write, attempt)
        return None if attempt is None else (attempt, self._age(attempt))

    async def asking(self, node_id: str) -> None:
        """To be called before the cloud is."""
        await asyncio.to_thread(self._write, Attempt(node_id, self._wall()))

    async def unclear(self, node_id: str) -> None:
        """The call is over, and nobody knows what came of it."""
        await asyncio.to_thread(self._write, Attempt(node_id, self._wall()))

    async def none_given(self, node_id: str) -> None:
        """It was answered well, with no machine; one may still appear."""
        attempt = Attempt(node_id, self._wall(), Outcome.NONE_GIVEN)
        await asyncio.to_thread(self._write, attempt)

    async def given(self, node_id: str, instance_id: str) -> None:
        """The node has its machine."""
        attempt = Attempt(node_id, self._wall(), Outcome.GIVEN, instance_id)
        await asyncio.to_thread(self._write_and_tidy, attempt)

    async def close(self, node_id: str) -> None:
        """No machine comes of it."""
        await asyncio.to_thread(self._path(node_id).unlink, missing_ok=True)

    def _age(self, attempt: Attempt) -> float:
        age = max(0.0, self._wall() - attempt.asked_at)
        asked = self._asked.get(attempt.node_id)
        # A clock that was set forward must not make anybody ask a second time too soon.
        return age if self._steady is None or asked is None else min(age, self._steady() - asked)

    def _path(self, node_id: str) -> Path:
        return self._directory / f"{hashlib.sha256(node_id.encode()).hexdigest()[:32]}.json"

    def _read(self, path: Path) -> Attempt | None:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return Attempt(**{**told, "outcome": Outcome(told["outcome"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as bad:
            why = f"{path} cannot be read ({bad}): it tells whether a machine was asked for"
            raise Unavailable(f"{why}; look for it at the vendor, then remove the file") from bad

    def _write(self, attempt: Attempt) -> None:
        if self._steady is not None:
            self._asked[attempt.node_id] = self._steady()
        path = self._path(attempt.node_id)
        draft = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with draft.open("w", encoding="utf-8") as file:
                json.dump(asdict(attempt), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as full:
            raise Unavailable(f"{path} cannot be written: {full.strerror}") from full

    def _write_and_tidy(self, attempt: Attempt) -> None:
        known = self._path(attempt.node_id)
        before = self._read(known)
        if before is not None and before.instance_id == attempt.instance_id:
            return
        self._write(attempt)
        for path in self._directory.glob("*.json"):
            # One that cannot be read is told to whoever asks about its node.
            with suppress(Unavailable):
                self._tidy(path)

    def _tidy(self, path: Path) -> None:
        old = self._read(path)
        if old is not None and old.outcome is Outcome.GIVEN and self._age(old) > _KEPT:
            self._asked.pop(old.node_id, None)
            path.unlink(missing_ok=True)
