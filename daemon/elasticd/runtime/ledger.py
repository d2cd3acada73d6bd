"""The ledger: what is intended is written here before it is done.

Rows are the truth a restart begins from; the journal entry beside them, in the same transaction,
tells why. Knows nothing of what a row means. SQLite blocks, so all of it runs in one thread.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from elasticd.core.fleet import Row
from elasticd.runtime.ledger_file import (
    LedgerRefused,
    disk_refusals,
    open_ledger_file,
    read_only,
    unreadable,
)
from elasticd.runtime.state_lock import StateLock

T = TypeVar("T")

_TRIM_STEP = 64
"""Entries that are dropped at once: trimming one by one would cost a delete per commit."""


class LedgerWriteFailed(Exception):
    """A commit did not happen (disk full, I/O error) and left nothing behind."""


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """How much of the journal is kept: the newest entries within both bounds."""

    entries: int = 100_000
    size: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What happened at one time and what was decided, as plain JSON.

    `quiet`: the steps since the entry before that changed nothing, packed (`runtime.recorder`).
    `core`: the version of the core that decided.
    """

    at: float
    events: tuple[dict[str, Any], ...]
    plan: dict[str, Any]
    seq: int = 0
    epoch: int = 0
    quiet: bytes = b""
    core: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the ledger held when it was opened; `last_time` is the floor for the clock, seconds."""

    ledger_id: str
    epoch: int
    last_time: float
    rows: tuple[Row, ...]


class LedgerStore:
    """The blocking half: one connection, used by one thread at a time."""

    def __init__(self, state_dir: Path, limits: JournalLimits) -> None:
        self._limits = limits
        with disk_refusals(state_dir):
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = StateLock(state_dir)
        try:
            self._open(state_dir / "ledger.sqlite")
        except BaseException:
            self._lock.release()
            raise

    def _open(self, path: Path) -> None:
        self._db = open_ledger_file(path)
        try:
            self.restored = self._restore()
            self._count, self._size = self._db.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM journal"
            ).fetchone()
        except LedgerWriteFailed as failed:
            self._db.close()
            raise LedgerRefused(
                f"{path}: cannot be written ({failed}); "
                "see to disk space and to the owner of the file"
            ) from failed
        except (sqlite3.DatabaseError, ValueError) as bad:
            self._db.close()
            raise unreadable(path, bad) from bad

    def _restore(self) -> Restored:
        """Reads everything, then begins an epoch: on disk before anything is named after it."""
        rows = tuple(
            Row(kind, key, json.loads(doc))
            for kind, key, doc in self._db.execute("SELECT kind, id, doc FROM rows")
        )
        with _Transaction(self._db):
            self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
        meta = dict(self._db.execute("SELECT key, value FROM meta"))
        return Restored(meta["ledger_id"], int(meta["epoch"]), float(meta["last_time"]), rows)

    def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Writes everything or nothing. Raises `LedgerWriteFailed`."""
        with _Transaction(self._db):
            for row in rows:
                self._write_row(row)
            size = self._size + sum(self._write_entry(entry) for entry in entries)
            count, size = self._trim(self._count + len(entries), size)
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'last_time'", (repr(at),))
        self._count, self._size = count, size

    def _write_row(self, row: Row) -> None:
        if row.doc is None:
            self._db.execute("DELETE FROM rows WHERE kind = ? AND id = ?", (row.kind, row.id))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (row.kind, row.id, _dump(row.doc))
            )

    def _write_entry(self, entry: JournalEntry) -> int:
        events, plan = _dump(entry.events), _dump(entry.plan)
        size = len(events) + len(plan)
        self._db.execute(
            "INSERT INTO journal (at, epoch, events, plan, size) VALUES (?, ?, ?, ?, ?)",
            (entry.at, self.restored.epoch, events, plan, size),
        )
        return size

    def _trim(self, count: int, size: int) -> tuple[int, int]:
        """Drops the oldest entries, a few more than needed so that it is not done every time."""
        if count <= self._limits.entries and size <= self._limits.size:
            return count, size
        target = self._limits.entries - _TRIM_STEP
        last = 0
        for seq, entry_size in self._db.execute("SELECT seq, size FROM journal ORDER BY seq"):
            if count <= 1 or (count <= target and size <= self._limits.size):
                break
            last, count, size = seq, count - 1, size - entry_size
        self._db.execute("DELETE FROM journal WHERE seq <= ?", (last,))
        return count, size

    def read_journal(self, since_seq: int, since: float, limit: int) -> list[JournalEntry]:
        """Entries after `since_seq` and not before `since`, oldest first."""
        return _read_journal(self._db, since_seq, since, limit)

    def close(self) -> None:
        """Closes the file and lets the next controller in."""
        self._db.close()
        self._lock.release()


class Ledger:
    """The store behind a thread of its own, so that no fsync ever holds up the loop."""

    def __init__(self, store: LedgerStore, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._thread = thread
        self.restored = store.restored

    @classmethod
    async def open(cls, state_dir: Path, limits: JournalLimits | None = None) -> Self:
        """Takes the state directory. Raises `StateDirInUse` and `LedgerRefused`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        loop = asyncio.get_running_loop()
        try:
            store = await loop.run_in_executor(
                thread, LedgerStore, state_dir, limits or JournalLimits()
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(store, thread)

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Returns when it is on the disk. Raises `LedgerWriteFailed` if it is not."""
        await self._call(lambda: self._store.commit(at, rows, entries))

    async def read_journal(
        self, since_seq: int = 0, since: float = 0.0, limit: int = 1000
    ) -> list[JournalEntry]:
        """Entries after `since_seq` and not before `since` (seconds), oldest first."""
        return await self._call(lambda: self._store.read_journal(since_seq, since, limit))

    async def aclose(self) -> None:
        """Waits for a commit under way, then closes."""
        await self._call(self._store.close)
        self._thread.shutdown(wait=False)

    async def _call(self, what: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, what)


def read_journal_file(
    state_dir: Path, since_seq: int = 0, since: float = 0.0, limit: int = 1000
) -> list[JournalEntry]:
    """The journal without a controller, for commands. Raises `LedgerRefused`."""
    with read_only(state_dir / "ledger.sqlite") as db:
        return _read_journal(db, since_seq, since, limit)


def _read_journal(
    db: sqlite3.Connection, since_seq: int, since: float, limit: int
) -> list[JournalEntry]:
    return [
        JournalEntry(at, tuple(json.loads(events)), json.loads(plan), seq, epoch)
        for seq, at, epoch, events, plan in db.execute(
            "SELECT seq, at, epoch, events, plan FROM journal"
            " WHERE seq > ? AND at >= ? ORDER BY seq LIMIT ?",
            (since_seq, since, limit),
        )
    ]


class _Transaction:
    """`BEGIN IMMEDIATE … COMMIT`; on any error everything is taken back.

    What the disk is to blame for becomes `LedgerWriteFailed`; a damaged file stays a fault.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as failed:
            raise LedgerWriteFailed(str(failed)) from failed

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if exc is None:
            try:
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as failed:
                self._roll_back()
                raise LedgerWriteFailed(str(failed)) from failed
            return
        self._roll_back()
        if isinstance(exc, sqlite3.OperationalError):
            raise LedgerWriteFailed(str(exc)) from exc

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite itself rolls back after some errors
            self._db.execute("ROLLBACK")


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
