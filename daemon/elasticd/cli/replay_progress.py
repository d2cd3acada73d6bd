"""How far a replay has come, on standard error: a line that changes, or one now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console

from elasticd.cli.output import tell

if TYPE_CHECKING:
    from elasticd.runtime.replay_report import Report

_TERMINAL, _ELSEWHERE = 0.2, 10.0
"""Seconds between two looks of somebody who waits, and between two lines in a file."""


class ReplayProgress:
    """`size`: how many entries there are, as far as is known."""

    def __init__(self, size: int, console: Console | None = None) -> None:
        self._size = size
        self._console = console or Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._status = self._console.status("reading the journal") if self._live else None
        self._next = time.monotonic() + (0.0 if self._live else _ELSEWHERE)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    @property
    def shown(self) -> str:
        """What stands in the line that changes; empty without one."""
        return "" if self._status is None else str(self._status.status)

    def show(self, report: Report) -> None:
        """Called after each entry."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_TERMINAL if self._live else _ELSEWHERE)
        text = (
            f"{report.entries:,} of {max(self._size, report.entries):,} entries, "
            f"{report.steps:,} steps, {report.unequal:,} decided otherwise"
        )
        if self._status is not None:
            self._status.update(text)
        else:
            tell(text)
