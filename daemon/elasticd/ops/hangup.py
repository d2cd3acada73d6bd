"""SIGHUP means "read the configuration again", from the first moment of a process on.

By default it ends a process. Whoever reads a configuration first makes a `Hangups`: a signal that
comes before there is anything to reload is kept, for the file may have changed since it was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path


class Hangups:
    """Hears SIGHUP from its construction on, in the main thread, and keeps it for a listener.

    `ignored_before`: whoever started us meant us to outlive the terminal (nohup).
    """

    def __init__(self) -> None:
        self.ignored_before = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._kept = False
        self._tell: Callable[[], object] | None = None
        signal.signal(signal.SIGHUP, self._hear)

    def _hear(self, *_: object) -> None:
        if self._tell is None:
            self._kept = True
        else:
            self._tell()

    def take(self) -> bool:
        """Whether one came that nobody has heard; it counts as heard then."""
        kept, self._kept = self._kept, False
        return kept

    @contextlib.contextmanager
    def heard_by(self, call: Callable[[], object]) -> Iterator[None]:
        """Calls `call` on the running loop for each SIGHUP while the block runs, and for one that
        came before. Afterwards it is kept again: it must not end what stops in order."""
        loop = asyncio.get_running_loop()
        # Not the loop's own signal handlers: taking one off lets the signal end us for a moment.
        self._tell = lambda: loop.call_soon_threadsafe(call)
        if self.take():
            self._tell()
        try:
            yield
        finally:
            self._tell = None


def takes_hangup(pid: int) -> bool:
    """Whether SIGHUP would be handled (or ignored) by the process instead of ending it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    bit = 1 << (signal.SIGHUP - 1)
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return any(int(fields.get(name, "0"), 16) & bit for name in ("SigCgt", "SigIgn"))


def has_terminal() -> bool:
    """Whether there is a terminal to this session, so that someone may sit in front of it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
