"""The ledger: what is intended is written here before it is done.

Rows are the truth a restart begins from; the journal entry beside them, in the same transaction,
tells why. Knows nothing of what a row means. SQLite blocks, so all of it runs in one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from elasticd.core.fleet import Row
from elasticd.runtime.ledger_content import write_meta, write_row
from elasticd.runtime.ledger_copier import LAST, Copier, CopyState
from elasticd.runtime.ledger_errors import (
    LedgerRefused,
    LedgerUnavailable,
    LedgerWriteFailed,
    disk_refusals,
    unavailable,
)
from elasticd.runtime.ledger_file import open_ledger_file, read_only, told_clearly
from elasticd.runtime.ledger_journal import JournalEntry, JournalLimits, read_entries, write_entry
from elasticd.runtime.ledger_transaction import Transaction
from elasticd.runtime.state_lock import StateLock

__all__ = [
    "JournalEntry",
    "JournalLimits",
    "Ledger",
    "LedgerRefused",
    "LedgerStore",
    "LedgerUnavailable",
    "LedgerWriteFailed",
    "Restored",
    "read_journal_file",
]

T = TypeVar("T")

LEDGER_FILE = "ledger.sqlite"

_TRIM_STEP = 64
"""Entries that are dropped at once: trimming one by one would cost a delete per commit."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Restored:
    """What the ledger held when it was opened; `last_time` is the floor for the clock, seconds.

    `told`: what was done to the file on the way (migrated, repaired), sentences for people.
    """

    ledger_id: str
    epoch: int
    last_time: float
    rows: tuple[Row, ...]
    told: tuple[str, ...] = ()


class LedgerStore:
    """The blocking half: one connection, used by one thread at a time.

    `core` is the version of the core whose decisions are written, where an entry names none.
    """

    def __init__(self, state_dir: Path, limits: JournalLimits, core: str = "") -> None:
        self._limits = limits
        self._core = core
        self._path = state_dir / LEDGER_FILE
        with disk_refusals(state_dir):
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = StateLock(state_dir)
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        self.copier = Copier(self._path)
        self.copier.start()

    def _open(self) -> None:
        opened = open_ledger_file(self._path)
        self._db = opened.db
        meta = opened.content.meta
        try:
            with told_clearly(self._path):
                epoch = self._begin(int(meta["epoch"]) + 1)
                self._count, self._size = self._db.execute(
                    "SELECT count(*), coalesce(sum(size), 0) FROM journal"
                ).fetchone()
                log = self._path.with_name(f"{LEDGER_FILE}-wal")
                self._files = [path for path in (self._path, log) if path.exists()]
                self._places = [place_of(path) for path in self._files]
        except BaseException:
            self._db.close()
            raise
        self.restored = Restored(
            meta["ledger_id"], epoch, float(meta["last_time"]), opened.content.rows, opened.told
        )

    def _begin(self, epoch: int) -> int:
        """A new epoch, on the disk before anything is named after it, and not in the log alone."""
        try:
            with Transaction(self._db):
                write_meta(self._db, "epoch", str(epoch))
        except LedgerWriteFailed as failed:
            raise unavailable(self._path, failed) from failed
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return epoch

    def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Writes everything or nothing. Raises `LedgerWriteFailed`."""
        self._check_place()
        with Transaction(self._db):
            for row in rows:
                write_row(self._db, row)
            size = self._size + sum(self._write_entry(entry) for entry in entries)
            count, size = self._trim(self._count + len(entries), size)
            write_meta(self._db, "last_time", repr(float(at)))
        self._count, self._size = count, size
        if rows:
            self.copier.rows_changed()

    def _write_entry(self, entry: JournalEntry) -> int:
        told = entry if entry.core else replace(entry, core=self._core)
        return write_entry(self._db, replace(told, seq=0), self.restored.epoch)

    def _check_place(self) -> None:
        """SQLite goes on writing to a file that has been removed: nobody would find it again."""
        for path, place in zip(self._files, self._places, strict=True):
            try:
                found = place_of(path)
            except OSError as bad:
                raise LedgerWriteFailed(f"{path}: {bad.strerror}; put it back") from bad
            if found != place:
                raise LedgerWriteFailed(f"{path}: replaced by another file; put the old one back")

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
        return list(read_entries(self._db, since_seq, since, limit))

    def close(self) -> None:
        """Closes the file and lets the next controller in."""
        self.copier.stop(last=LAST)
        self._db.close()
        self._lock.release()


def place_of(path: Path) -> tuple[int, int]:
    """Which file stands at a path."""
    found = path.stat()
    return found.st_dev, found.st_ino


class Ledger:
    """The store behind a thread of its own, so that no fsync ever holds up the loop."""

    def __init__(self, store: LedgerStore, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._thread = thread
        self.restored = store.restored

    @classmethod
    async def open(
        cls, state_dir: Path, limits: JournalLimits | None = None, core: str = ""
    ) -> Self:
        """Takes the state directory. `core`: the version of the core whose decisions are written.

        Raises `StateDirInUse`, `LedgerRefused` (for good) and `LedgerUnavailable` (for now).
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        loop = asyncio.get_running_loop()
        try:
            store = await loop.run_in_executor(
                thread, LedgerStore, state_dir, limits or JournalLimits(), core
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        for told in store.restored.told:
            _log.warning("ledger_changed", what=told)
        return cls(store, thread)

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Returns when it is on the disk. Raises `LedgerWriteFailed` if it is not."""
        await self._call(lambda: self._store.commit(at, rows, entries))

    async def read_journal(
        self, since_seq: int = 0, since: float = 0.0, limit: int = 1000
    ) -> list[JournalEntry]:
        """Entries after `since_seq` and not before `since` (seconds), oldest first."""
        return await self._call(lambda: self._store.read_journal(since_seq, since, limit))

    def copy_state(self) -> CopyState:
        """The previous copy that a damaged ledger could be replaced by."""
        return self._store.copier.state()

    def summary(self) -> dict[str, Any]:
        """JSON-able, for the status: age (seconds, `None`: none) and problem of the copy, and what
        was done to the file at this start."""
        copy = self.copy_state()
        return {
            "copy_age": copy.age,
            "copy_error": copy.error,
            "told": list(self.restored.told),
        }

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
    with read_only(state_dir / LEDGER_FILE) as db:
        return list(read_entries(db, since_seq, since, limit))
