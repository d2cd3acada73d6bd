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

from elasticd.runtime.ledger_content import connect
from elasticd.runtime.ledger_copy import previous_of, way_back
from elasticd.runtime.ledger_errors import ContentDamaged, LedgerRefused
from elasticd.runtime.ledger_file import identify, unreadable
from elasticd.runtime.ledger_header import read_header

_NAME = "ledger.sqlite"


@contextlib.contextmanager
def peek(place: Path) -> Iterator[sqlite3.Connection]:
    """The ledger of a state directory, or a ledger's file, for reading. Raises `LedgerRefused`."""
    path = place / _NAME
    try:
        if place.is_file() and read_header(place) is not None:
            path = place
        if not path.is_file():
            raise LedgerRefused(_nothing_there(place, path))
        identify(path)
        with _way_in(path) as uri, contextlib.closing(connect(uri, uri=True)) as db:
            yield db
    except (ContentDamaged, sqlite3.DatabaseError) as bad:
        raise unreadable(path, bad) from bad
    except OSError as bad:
        raise LedgerRefused(
            f"{bad.filename or path}: cannot be read ({bad.strerror}); "
            "run this as the daemon's user"
        ) from bad


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
    beside = (previous_of(ledger), ledger.with_name(f"{ledger.name}-wal"))
    return [path for path in beside if os.path.lexists(path)]


def _lost(path: Path, traces: list[Path]) -> str:
    """Its machines may run and be paid for: nothing is to be concluded from its absence."""
    if previous_of(path) not in traces:
        return (
            f"{path}: the ledger is missing, its log {traces[0].name} is there: put the ledger "
            "back before anything else"
        )
    return (
        f"{path}: the ledger is missing, its copy is there: restore it before anything else. "
        f"{way_back(path)}"
    )


@contextlib.contextmanager
def _way_in(path: Path) -> Iterator[str]:
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        with path.open("rb"):  # SQLite would only say "unable to open"
            yield f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    elif path.with_name(f"{path.name}-shm").exists():
        with path.open("rb"):
            yield f"{path.absolute().as_uri()}?mode=ro"
    else:
        with tempfile.TemporaryDirectory(prefix="elasticd-") as folder:
            copy = Path(folder) / _NAME
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(f"{_NAME}-wal"))
            yield f"{copy.as_uri()}?mode=ro"
