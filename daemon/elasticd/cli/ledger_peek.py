"""Looks into a ledger that nobody serves from, without leaving a trace beside it.

SQLite makes files next to a database that it opens in WAL mode, for reading too. So the way in
depends on what lies there: a ledger that was closed in order is read as it is; one whose
controller was killed, or lives and does not answer, through the files that exist; one that was
copied without its shared-memory file, from a copy elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elasticd.errors import ElasticdError
from elasticd.runtime.ledger_content import connect
from elasticd.runtime.ledger_copy import previous_of, way_back
from elasticd.runtime.ledger_errors import (
    ContentDamaged,
    LedgerRefused,
    LedgerUnavailable,
    errno_passes,
    passes,
)
from elasticd.runtime.ledger_file import identify, unreadable
from elasticd.runtime.ledger_header import beside, log_of, mark_of, read_header
from elasticd.runtime.ledger_mark import check_marks, marks_of

_NAME = "ledger.sqlite"


@contextlib.contextmanager
def peek(place: Path, *, history: bool = False) -> Iterator[sqlite3.Connection]:
    """The ledger of a state directory, or a ledger's file, for reading.

    `history`: only its journal is read; then one that has lost what came last is good enough.
    Raises `LedgerRefused`, and `LedgerUnavailable` where it cannot be opened now.
    """
    path = place / _NAME
    with contextlib.ExitStack() as way:
        try:
            if place.is_file() and read_header(place) is not None:
                path = place
            if not path.is_file():
                raise LedgerRefused(_nothing_there(place, path))
            identify(path)
            marks = () if history else marks_of(path)
            uri = way.enter_context(_way_in(path))
            db = way.enter_context(contextlib.closing(connect(uri, uri=True)))
            check_marks(path, db, marks)
        except OSError as bad:
            raise _not_opened(path, bad) from bad
        except (ContentDamaged, sqlite3.DatabaseError) as bad:
            raise _of_the_file(path, bad) from bad
        try:
            yield db
        except (ContentDamaged, sqlite3.DatabaseError) as bad:
            raise _of_the_file(path, bad) from bad


def _of_the_file(path: Path, bad: Exception) -> ElasticdError:
    """A file that cannot be opened is not damaged, and must not be replaced for that."""
    if isinstance(bad, sqlite3.Error) and passes(bad):
        return LedgerUnavailable(
            f"{path}: cannot be opened now: {bad}; nothing is known to be wrong with it. Try "
            "again; run this as the daemon's user, who may read all its files"
        )
    return unreadable(path, bad)


def _not_opened(path: Path, bad: OSError) -> ElasticdError:
    where = bad.filename or path
    if errno_passes(bad):
        # A copy is made in the directory for temporary files: that one may be full, too.
        place = bad.filename2 or where
        return LedgerUnavailable(
            f"{path}: cannot be opened now: {place}: {bad.strerror}; nothing is known to be wrong "
            "with it. Make room there, or close what has too many files open, and try again"
        )
    return LedgerRefused(f"{where}: cannot be read ({bad.strerror}); run this as the daemon's user")


def _nothing_there(state_dir: Path, path: Path) -> str:
    if not state_dir.exists():
        return f"{state_dir}: no such directory; no controller has run with this state_dir"
    if not state_dir.is_dir():
        return f"{state_dir}: not a directory; correct state_dir in the configuration"
    if path.is_symlink() and not path.exists():
        return f"{path}: a link to {path.readlink()}, which is not there; mount the disk it is on"
    if path.exists():
        return f"{path}: not a file; correct state_dir in the configuration"
    if traces := traces_of(path):
        return _lost(path, traces)
    return f"{path}: no ledger here; no controller has run with this state_dir"


def traces_of(ledger: Path) -> list[Path]:
    """What lies beside a ledger's place and says that there has been one."""
    return [
        path
        for path in (previous_of(ledger), log_of(ledger), mark_of(ledger))
        if os.path.lexists(path)
    ]


def _lost(path: Path, traces: list[Path]) -> str:
    """Its machines may run and be paid for: nothing is to be concluded from its absence."""
    if previous_of(path) not in traces:
        what = "log" if traces[0] == log_of(path) else "mark"
        return (
            f"{path}: the ledger is missing, its {what} {traces[0].name} is there: put the ledger "
            "back before anything else"
        )
    return (
        f"{path}: the ledger is missing, its copy is there: restore it before anything else. "
        f"{way_back(path)}"
    )


@contextlib.contextmanager
def _way_in(path: Path) -> Iterator[str]:
    log, shared = log_of(path), beside(path, "-shm")
    for file in (path, log, shared):  # SQLite would only say "unable to open"
        if file == path or file.exists():
            file.open("rb").close()
    if not log.exists():
        yield f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    elif shared.exists():
        yield f"{path.absolute().as_uri()}?mode=ro"
    else:
        with tempfile.TemporaryDirectory(prefix="elasticd-") as folder:
            copy = Path(folder) / _NAME
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(f"{_NAME}-wal"))
            yield f"{copy.as_uri()}?mode=ro"
