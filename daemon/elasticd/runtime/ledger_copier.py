"""Keeps the previous copy of a living ledger: after a clean start, then hourly and at the end, if
rows changed.

It reads through a connection of its own, in a thread of its own: a commit never waits for it. A
copy that fails is a warning and nothing more; the one that was there stays.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from elasticd.runtime.ledger_content import Content, connect
from elasticd.runtime.ledger_copy import (
    NotCopied,
    age_of,
    copy_ledger,
    dated,
    previous_of,
    read_copy,
)
from elasticd.runtime.ledger_errors import ContentDamaged

PERIOD = 3600.0
"""Seconds between two copies, at least."""

RETRY = 300.0
"""Seconds until a copy that failed is tried again."""

LAST = 2.0
"""Seconds that the copy at the end may take; one that would take longer is given up."""

_PACE = 0.002
"""Seconds of rest between two steps, so that the disk has time for commits."""

_SPARE = 4 * 1024 * 1024
"""Bytes that a copy leaves free: the last of a disk belongs to the ledger itself."""

_log = structlog.get_logger()


class _Stopped(Exception):
    pass


@dataclass(frozen=True, slots=True)
class CopyState:
    """`age`: seconds since the last good copy, `None`: there is none. `error`: why not newer."""

    age: float | None
    error: str


class Copier:
    """Runs from `start` to `stop`. `clock`: monotonic, seconds."""

    def __init__(self, ledger: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._target = previous_of(ledger)
        self._clock = clock
        self._turn = threading.Condition()
        self._stop = threading.Event()
        self._wanted, self._due = True, 0.0
        self._until, self._took = 0.0, 0.0
        self._tries = 0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="ledger-copy", daemon=True)

    def start(self) -> None:
        """The first copy is made at once."""
        self._thread.start()

    def rows_changed(self) -> None:
        """What was copied is not all any more."""
        with self._turn:
            self._wanted = True
            self._turn.notify_all()

    def stop(self, last: float = 0.0) -> None:
        """Makes a last copy if rows have changed, in `last` seconds or not at all, and waits until
        nothing is open any more."""
        self._until = time.monotonic() + last
        self._stop.set()
        with self._turn:
            self._turn.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def wait_for_tries(self, count: int, timeout: float) -> bool:
        """Whether so many copies have been made or have failed, within so many seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: self._tries >= count, timeout)

    def state(self) -> CopyState:
        """What there is to fall back to."""
        try:
            return CopyState(age_of(self._target), self._error)
        except OSError:
            return CopyState(None, self._error)

    def _run(self) -> None:
        while self._wait_until_due():
            began = time.monotonic()
            error = self._copy()
            self._took = time.monotonic() - began
            with self._turn:
                self._tell(error)
                self._wanted = self._wanted or bool(error)
                self._due = self._clock() + (RETRY if error else PERIOD)
                self._tries += 1
                self._turn.notify_all()
            if error and self._stop.is_set():
                return  # one try: nobody waits for a second

    def _wait_until_due(self) -> bool:
        with self._turn:
            while not self._stop.is_set():
                left = self._due - self._clock()
                if self._wanted and left <= 0:
                    self._wanted = False
                    return True
                self._turn.wait(left if self._wanted else None)
            # The checks at its end cannot be cut short: what the copy before took is a measure.
            wanted = self._wanted and time.monotonic() + self._took < self._until
            self._wanted = False
        return wanted

    def _copy(self) -> str:
        """Why there is no new copy; empty: there is."""
        try:
            uri = f"{self._ledger.absolute().as_uri()}?mode=ro"
            with contextlib.closing(connect(uri, uri=True)) as origin:
                self._check_room(origin)
                keep_other(self._target, origin)
                copy_ledger(origin, self._ledger, self._target, self._between)
        except _Stopped:
            return "the controller stopped before it was done"
        except (NotCopied, OSError, sqlite3.Error) as failed:
            return str(failed)
        return ""

    def _check_room(self, origin: sqlite3.Connection) -> None:
        pages, size = (
            int(origin.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "page_size")
        )
        disk = os.statvfs(self._target.parent)
        if disk.f_bavail * disk.f_frsize < 2 * pages * size + _SPARE:
            raise NotCopied(f"too little room at {self._target.parent}")

    def _between(self) -> None:
        if self._stop.wait(_PACE) and time.monotonic() >= self._until:
            raise _Stopped

    def _tell(self, error: str) -> None:
        if error and error != self._error and not self._stop.is_set():
            _log.warning("ledger_not_copied", copy=str(self._target), problem=error)
        elif self._error and not error:
            _log.info("ledger_copied_again", copy=str(self._target))
        self._error = error


def keep_other(target: Path, origin: sqlite3.Connection) -> None:
    """A copy of another ledger, or of a later time than this one, is not written over.

    Somebody has put an older file in the ledger's place: what was newer may be all that tells of
    machines which still run.
    """
    try:
        there = read_copy(target)
    except FileNotFoundError:
        return
    except (ContentDamaged, sqlite3.Error):
        return
    if _is_newer(there, dict(origin.execute("SELECT key, value FROM meta"))):
        target.rename(dated(target, "kept", target.suffix))


def _is_newer(there: Content, here: dict[str, str]) -> bool:
    return there.meta["ledger_id"] != here["ledger_id"] or float(there.meta["last_time"]) > float(
        here["last_time"]
    )
