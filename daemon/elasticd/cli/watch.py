"""`elasticd status --watch`: the status again and again, until Ctrl-C.

A terminal is redrawn in place. Elsewhere, and as JSON, something is printed when the fleet
changed: ages that grow are no change.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from elasticd.cli.output import print_json, print_lines
from elasticd.errors import NotReachable
from elasticd.ops.durations import moment
from elasticd.ops.status_change import essence, still
from elasticd.ops.status_problems import is_fine

_PERIOD = 1.0
"""Seconds between two looks."""

_HOME, _CLEAR_BELOW, _CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Daemon(Protocol):
    """What is asked; `elasticd.cli.admin_client.AdminClient`."""

    def status(self) -> dict[str, Any]: ...


class Screen(Protocol):
    """Where it is shown."""

    def show(self, answer: dict[str, Any]) -> None: ...

    def lost(self, silent: NotReachable) -> None: ...


def watch(
    daemon: Daemon,
    answer: dict[str, Any] | None,
    text_of: Callable[[dict[str, Any]], list[str]],
    *,
    as_json: bool,
) -> int:
    """From `answer` on; `None`: nobody answers yet. The exit code is that of the last look."""
    terminal = sys.stdout.isatty() and not as_json
    screen: Screen = _Terminal(text_of) if terminal else _Changes(None if as_json else text_of)
    if terminal:
        sys.stdout.write(_HIDE_CURSOR + (_HOME + _CLEAR_BELOW if answer is not None else ""))
    code = NotReachable.exit_code
    try:
        if answer is not None:
            code = 0 if is_fine(answer) else 1
            screen.show(answer)
        while True:
            time.sleep(_PERIOD)
            try:
                answer = daemon.status()
            except NotReachable as silent:
                code = silent.exit_code
                screen.lost(silent)
            else:
                code = 0 if is_fine(answer) else 1
                screen.show(answer)
    except KeyboardInterrupt:
        return code
    finally:
        if terminal:
            sys.stdout.write(_SHOW_CURSOR)
            sys.stdout.flush()


class _Terminal:
    """Redraws; what does not fit is cut at the bottom, and said."""

    def __init__(self, text_of: Callable[[dict[str, Any]], list[str]]) -> None:
        self._text_of = text_of
        self._lines: list[str] = []

    def show(self, answer: dict[str, Any]) -> None:
        self._lines = self._text_of(answer)
        self._draw(f"{moment(time.time())}  Ctrl-C ends this")

    def lost(self, silent: NotReachable) -> None:
        self._draw(f"OLD, and asking again: {silent}")

    def _draw(self, head: str) -> None:
        room = shutil.get_terminal_size((80, 24)).lines - 2
        lines = [head, *self._lines]
        if len(lines) > room:
            lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
        body = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
        sys.stdout.write(f"{_HOME}{body}{_CLEAR_BELOW}")
        sys.stdout.flush()


class _Changes:
    """Prints what changed; without `text_of` all of it, as one line of JSON."""

    def __init__(self, text_of: Callable[[dict[str, Any]], list[str]] | None) -> None:
        self._text_of = text_of
        self._told: Any = None
        self._lines: dict[str, str] = {}

    def show(self, answer: dict[str, Any]) -> None:
        if self._text_of is not None:
            self._show_lines(self._text_of(answer))
            return
        now = essence(answer)
        if now != self._told:
            self._told = now
            print_json(answer, one_line=True)

    def _show_lines(self, lines: list[str]) -> None:
        """The first time all; then lines that are new, and problems that are over."""
        before, self._lines = self._lines, {still(line): line for line in lines}
        if not before or self._told == "lost":
            new = lines
        else:
            new = [line for key, line in self._lines.items() if key not in before]
            new += [
                f"over: {line[1:].strip()}"
                for key, line in before.items()
                if line.startswith("!") and key not in self._lines
            ]
        self._told = None
        if new:
            print_lines([f"--- {moment(time.time())}", *new, ""])

    def lost(self, silent: NotReachable) -> None:
        if self._told == "lost":
            return
        self._told = "lost"
        if self._text_of is None:
            print_json({"reachable": False, "problem": str(silent)}, one_line=True)
        else:
            print_lines([f"--- {moment(time.time())}", f"elasticd: {silent}; asking again", ""])
