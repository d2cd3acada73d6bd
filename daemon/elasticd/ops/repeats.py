"""Folds log lines that repeat: an outage of hours fills no disk and hides nothing else.

The first lines of a kind are logged as they come. While it goes on, one line a minute tells how
many more there were, with the newest fields. After a minute without one it counts as new.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import structlog

PERIOD = 60.0
"""Seconds between two lines of one kind that goes on."""

_MOST_KINDS = 50
"""Kinds that are told apart at one time; what comes beyond them is folded together."""

_THE_REST = object()
_NUMBERED = re.compile(r"\S*\d\S*")

_log = structlog.get_logger("elasticd")


@dataclass(slots=True)
class _Kind:
    """`left`: lines that may still be logged as they come. `seen`: whether one came this minute,
    `folded`: how many of them have not been told."""

    left: int
    level: str = "info"
    event: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    seen: bool = False
    folded: int = 0
    timer: asyncio.TimerHandle | None = None


class Repeats:
    """Lines by kind. `first`: how many of a kind are logged before the rest is folded."""

    def __init__(self, first: int = 1) -> None:
        self._first = first
        self._kinds: dict[Hashable, _Kind] = {}

    def tell(self, level: str, event: str, kind: Hashable, **fields: Any) -> None:
        """One line of a kind; to be called on the running loop.

        `exc_info` is shown in lines that are logged as they come, and not held for later ones.
        """
        if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            kind = _THE_REST
        known = self._kinds.setdefault(kind, _Kind(self._first))
        known.level, known.event, known.seen = level, event, True
        known.fields = {name: value for name, value in fields.items() if name != "exc_info"}
        if known.timer is None:
            self._wait(kind, known)
        if known.left > 0:
            known.left -= 1
            _write(level, event, fields)
        else:
            known.folded += 1

    def over(self, kind: Hashable) -> None:
        """It has ended: tells what has not been told, and the next one is new."""
        known = self._kinds.pop(kind, None)
        if known is not None:
            if known.timer is not None:
                known.timer.cancel()
            _tell_folded(known)

    def close(self) -> None:
        """Tells everything that has not been told."""
        for kind in list(self._kinds):
            self.over(kind)

    def _wait(self, kind: Hashable, known: _Kind) -> None:
        known.timer = asyncio.get_running_loop().call_later(PERIOD, self._pass_minute, kind)

    def _pass_minute(self, kind: Hashable) -> None:
        known = self._kinds[kind]
        if not known.seen:
            del self._kinds[kind]
            return
        _tell_folded(known)
        known.left, known.folded, known.seen = 0, 0, False
        self._wait(kind, known)


def _tell_folded(kind: _Kind) -> None:
    if kind.folded:
        _write(kind.level, kind.event, {**kind.fields, "folded": kind.folded})


def _write(level: str, event: str, fields: dict[str, Any]) -> None:
    getattr(_log, level)(event, **fields)


def alike(text: str) -> str:
    """The text without what differs from one of a kind to the next: ids, times and counts."""
    return _NUMBERED.sub("#", text)
