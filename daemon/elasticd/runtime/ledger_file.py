"""The SQLite file behind the ledger: how it is made, opened or refused.

Everything here blocks; `runtime.ledger` calls it from a thread of its own. A file that cannot be
read in full is refused: it is never taken for "nothing is running".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.runtime.ledger_content import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    Content,
    connect,
    read_content,
    schema_of,
)
from elasticd.runtime.ledger_copy import previous_of, sync, way_back
from elasticd.runtime.ledger_errors import (
    ContentDamaged,
    LedgerRefused,
    disk_refusals,
    passes,
    unavailable,
)
from elasticd.runtime.ledger_header import beside, log_of, mark_of, read_header
from elasticd.runtime.ledger_journal import why_not_appended
from elasticd.runtime.ledger_mark import Mark, check_mark, marks_of
from elasticd.runtime.ledger_migrations import migrate
from elasticd.runtime.ledger_repair import rebuild, write_new


@dataclass(frozen=True, slots=True)
class Opened:
    """A ledger of the present schema with checked content.

    `told`: what was done to it on the way, sentences for people.
    """

    db: sqlite3.Connection
    content: Content
    told: tuple[str, ...] = ()


def open_ledger_file(path: Path) -> Opened:
    """Opens the ledger, made complete on first use. Raises `LedgerRefused`, `LedgerUnavailable`."""
    with told_clearly(path):
        if not os.path.lexists(path):  # a link to a disk that is not mounted is a ledger
            _create(path)
        _check_access(path)
        identify(path)
        marks = marks_of(path)
        content = _look(path)
        check_mark(path, Mark.of(content.meta), marks)
        with contextlib.ExitStack() as on_trouble:
            opened = _made_present(path, content, on_trouble)
            opened.db.execute("PRAGMA synchronous = FULL")
            on_trouble.pop_all()
    return opened


def _look(path: Path) -> Content:
    """Through a connection that cannot write: a file that is refused keeps its log, too."""
    options = "?mode=ro"
    if beside(path, "-journal").exists():
        options = ""  # cut off before it had a log: only a writer can take that back
    elif not log_of(path).exists():
        options = "?mode=ro&immutable=1"  # makes nothing beside it, for which there may be no room
    uri = f"{path.absolute().as_uri()}{options}"
    with contextlib.closing(connect(uri, uri=True)) as db:
        return read_content(db)


def _made_present(path: Path, content: Content, on_trouble: contextlib.ExitStack) -> Opened:
    """Brought to this schema, or repaired, where it has to be; nothing else is written."""
    db = connect(str(path))
    on_trouble.callback(db.close)
    told = ""
    if not content.elsewhere and schema_of(db) < SCHEMA_VERSION:
        told = migrate(db, path, content)
        content = read_content(db)
    if not content.elsewhere:
        db.execute("PRAGMA journal_mode = WAL")
        content = replace(content, elsewhere=why_not_appended(db))
    if content.elsewhere:
        told = rebuild(db, path, content)
        db = connect(str(path))
        on_trouble.callback(db.close)
        content = read_content(db)
        db.execute("PRAGMA journal_mode = WAL")
    return Opened(db, content, (told,) if told else ())


@contextlib.contextmanager
def told_clearly(path: Path) -> Iterator[None]:
    """Whatever is wrong with the ledger, as one error that says what, where, and what to do."""
    try:
        with disk_refusals(path):
            yield
    except ContentDamaged as bad:
        raise unreadable(path, bad) from bad
    except sqlite3.Error as bad:
        raise (unavailable(path, bad) if passes(bad) else unreadable(path, bad)) from bad


def unreadable(path: Path, why: object) -> LedgerRefused:
    """The refusal of a file that is ours and not whole."""
    return LedgerRefused(
        f"{path}: the ledger is damaged or cannot be read ({why}). Machines may be running and "
        f"paid for, so nothing is started over it. {way_back(path)}"
    )


def _check_access(path: Path) -> None:
    """SQLite would only say that it is unable to open it; of a pipe it would never say anything."""
    if path.is_symlink() and not path.exists():
        raise LedgerRefused(
            f"{path}: a link to {path.readlink()}, which is not there; mount the disk that it is "
            "on, or put the ledger back"
        )
    _check_file(path)
    for file in (path, log_of(path), beside(path, "-shm")):
        if file == path or file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise LedgerRefused(
            f"{path}: not a file, so no ledger; put the ledger back there, or use another state_dir"
        )


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger for reading beside a living writer, or with none. Raises `LedgerRefused`."""
    with told_clearly(path):
        if not path.exists():
            missing = "no ledger here; no controller has run with this state_dir"
            raise LedgerRefused(f"{path}: {missing}")
        _check_file(path)
        identify(path)
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(connect(uri, uri=True)) as db:
            yield db


def identify(path: Path) -> None:
    """Refuses a foreign program's file and one of a newer elasticd, and touches neither.

    Raises `ContentDamaged` for what is no database.
    """
    header = read_header(path)
    if header is None:
        raise ContentDamaged("file is not a database")
    if header.application != APPLICATION_ID:
        raise LedgerRefused(
            f"{path}: not a ledger of elasticd (empty, or another program's file). {way_back(path)}"
        )
    if header.schema < 1:
        raise ContentDamaged(f"it says that its schema is {header.schema}")
    if header.schema > SCHEMA_VERSION:
        raise LedgerRefused(
            f"{path}: written by a newer elasticd (schema {header.schema}, this one reads up to "
            f"{SCHEMA_VERSION}), and left as it is; start the newer version again"
        )


def _create(path: Path) -> None:
    """Writes the file beside its place and moves it there: it is complete or not there at all."""
    copy = previous_of(path)
    left = [there for there in (log_of(path), mark_of(path), copy) if os.path.lexists(there)]
    if left:
        verb = "is" if len(left) == 1 else "are"
        way = f". {way_back(path)}. T" if copy in left else ", or t"
        raise LedgerRefused(
            f"{path}: missing, but {', '.join(there.name for there in left)} {verb} there: the "
            f"ledger was lost or moved away; put it back{', or restore it' if copy in left else ''}"
            f"{way}o begin with an empty fleet, run "
            f"{shlex.join(['rm', *(str(there) for there in left)])}"
        )
    meta = {"ledger_id": secrets.token_hex(16), "epoch": "0", "last_time": "0.0"}
    write_new(path, Content(meta, ()), path.parent).rename(path)
    sync(path.parent)
