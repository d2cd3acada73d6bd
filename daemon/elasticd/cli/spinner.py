"""The line that says what is being waited for: turning in a terminal, seldom repeated elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from elasticd.cli.output import printable


class Spinner:
    """`say` prints lines for good; `waiting` shows one that is replaced.

    Without a terminal a waiting line is printed again only when `repeat` seconds have passed.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        repeat: float,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._repeat = repeat
        self._now = now
        self._console = console or Console(highlight=False)
        self._status: Status | None = None
        self._since = self._printed = now()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.done()

    def say(self, line: str) -> None:
        """A line that stays."""
        self._printed = self._now()
        if self._status is not None:
            self._console.print(
                "\n".join(map(printable, f"elasticd: {line}".split("\n"))), markup=False
            )
        else:
            self._say(line)

    def waiting(self, what: str) -> None:
        """What is being waited for, with the time since the start."""
        now = self._now()
        text = f"waiting for {what} ({now - self._since:.0f} s)"
        if self._status is not None:
            self._status.update(escape(printable(text)))
        elif now - self._printed >= self._repeat:
            self.say(text)

    def done(self) -> None:
        """Nothing is waited for any more."""
        if self._status is not None:
            self._status.stop()
            self._status = None
