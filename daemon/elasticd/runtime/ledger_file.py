"""The SQLite file behind the ledger: its schema, and how it is opened or refused.

Everything here blocks; `runtime.ledger` calls it from a thread of its own. A file that cannot be
read in full is refused: it is never taken for "nothing is running".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from elasticd.errors import ElasticdError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x656C6473
"""`elds`: tells our file from any other program's SQLite file."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE rows (
    kind TEXT NOT NULL, id TEXT NOT NULL, doc TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID, STRICT;
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, epoch INTEGER NOT NULL,
    events TEXT NOT NULL, plan TEXT NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE INDEX journal_at ON journal (at);
"""


class LedgerRefused(ElasticdError):
    """The ledger cannot be trusted or read: nothing is started on top of it.

    The exit code is that of a wrong configuration: trying again does not help.
    """

    exit_code = 2


def open_ledger_file(path: Path) -> sqlite3.Connection:
    """Opens the ledger, made complete on first use. Raises `LedgerRefused`."""
    try:
        with disk_refusals(path):
            if not os.path.lexists(path):  # a link to a disk that is not mounted is a ledger
                _create(path)
            _check_access(path)
        with contextlib.ExitStack() as on_trouble:
            db = _connect(path)
            on_trouble.callback(db.close)
            check_identity(db, path)
            _check_content(db, path)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            on_trouble.pop_all()
    except sqlite3.DatabaseError as bad:
        raise unreadable(path, bad) from bad
    return db


@contextlib.contextmanager
def disk_refusals(path: Path) -> Iterator[None]:
    """What the file system refuses of `path` or beside it becomes `LedgerRefused`."""
    try:
        yield
    except OSError as bad:
        raise LedgerRefused(
            f"{bad.filename or path}: cannot be opened or made ({bad.strerror}); the daemon's user "
            f"must be able to read and write {path} and its directory, on a disk that takes it"
        ) from bad


def _check_access(path: Path) -> None:
    """SQLite would only say that it is unable to open it; of a pipe it would never say anything."""
    if not path.is_file():
        raise LedgerRefused(
            f"{path}: not a file, so no ledger; put the ledger back there, or use another state_dir"
        )
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger for reading beside a living writer, or with none. Raises `LedgerRefused`."""
    with disk_refusals(path):
        if not path.exists():
            missing = "no ledger here; no controller has run with this state_dir"
            raise LedgerRefused(f"{path}: {missing}")
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        with contextlib.closing(db):
            check_identity(db, path)
            yield db
    except sqlite3.DatabaseError as bad:
        raise unreadable(path, bad) from bad


def check_identity(db: sqlite3.Connection, path: Path) -> None:
    """Refuses a foreign program's file and one of a newer elasticd."""
    application, schema = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise LedgerRefused(
            f"{path}: not a ledger of elasticd (empty, or another program's file); "
            "restore it from a backup, or use another state_dir"
        )
    if schema > SCHEMA_VERSION:
        raise LedgerRefused(
            f"{path}: written by a newer elasticd (schema {schema}, this one reads up to "
            f"{SCHEMA_VERSION}); start the newer version again"
        )


def _connect(path: Path) -> sqlite3.Connection:
    # Autocommit: every transaction is opened and closed by name, none by the driver.
    return sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)


def _create(path: Path) -> None:
    """Writes the file beside its place and moves it there: it is complete or not there at all."""
    leftover = path.with_name(f"{path.name}-wal")
    if leftover.exists():
        raise LedgerRefused(
            f"{path}: missing, but {leftover.name} is there: the ledger was lost or moved away; "
            "put it back, or remove the leftover to begin with an empty fleet"
        )
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(_connect(draft)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [("ledger_id", secrets.token_hex(16)), ("epoch", "0"), ("last_time", "0.0")],
        )
    draft.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_content(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise unreadable(path, found)
    known = {key for (key,) in db.execute("SELECT key FROM meta")}
    missing = {"ledger_id", "epoch", "last_time"} - known
    if missing:
        raise unreadable(path, f"no {', '.join(sorted(missing))} in it")


def unreadable(path: Path, why: object) -> LedgerRefused:
    """The refusal of a file that is ours and not whole."""
    return LedgerRefused(
        f"{path}: the ledger is damaged or cannot be read ({why}). Machines may be running and "
        "paid for: restore the file from a backup; before you remove it, end the machines of this "
        "cluster at the provider"
    )
