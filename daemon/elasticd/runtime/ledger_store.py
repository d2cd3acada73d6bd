"""The blocking half of the ledger: one connection to its file, used by one thread at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.core.fleet import Row
from elasticd.runtime.ledger_content import connect, dump, write_meta, write_row
from elasticd.runtime.ledger_copier import LAST, Copier
from elasticd.runtime.ledger_copy import COPIED, in_words
from elasticd.runtime.ledger_errors import LedgerWriteFailed, disk_refusals, taken_away, unavailable
from elasticd.runtime.ledger_file import open_ledger_file, told_clearly
from elasticd.runtime.ledger_header import log_of
from elasticd.runtime.ledger_journal import (
    COUNTED,
    SIZES,
    JournalEntry,
    JournalLimits,
    read_entries,
    write_entry,
)
from elasticd.runtime.ledger_mark import Mark, Marker
from elasticd.runtime.ledger_room import (
    PAGE,
    bound,
    check_disk,
    cut_log,
    dropping,
    empty_alone,
    empty_log,
    fills_its_disk,
    free_pages,
    is_small,
    longest_log,
    spare_pages,
    why_no_room,
)
from elasticd.runtime.ledger_transaction import Transaction
from elasticd.runtime.state_lock import StateLock

LEDGER_FILE = "ledger.sqlite"

AHEAD = 600.0
"""Seconds by which a ledger's time may be ahead of the host's clock before it is told."""

TRY_ROOM = 10.0
"""Seconds until it is tried again to make room on a disk, where that has failed."""

_2026 = 1_767_225_600
"""Unix time."""

SPARE_PAGES = 8
"""Pages that there should be for the next commits after room was made."""

_TRIM_STEP = 64
"""Entries that are dropped at once: trimming one by one would cost a delete per commit."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the ledger held when it was opened; `last_time` is the floor for the clock, seconds.

    `told`: what was done to the file on the way (migrated, repaired), sentences for people.
    `ahead`: seconds by which `last_time` was ahead of the host's clock.
    """

    ledger_id: str
    epoch: int
    last_time: float
    rows: tuple[Row, ...]
    told: tuple[str, ...] = ()
    ahead: float = 0.0

    def clock_remark(self) -> str:
        """What people should know of the clock that begins at `last_time`; empty: nothing."""
        if self.ahead < AHEAD:
            return ""
        return (
            f"the ledger's time is {in_words(self.ahead)} ahead of this host's clock, which was "
            "wrong in an earlier life of the controller, or is wrong now: then set it right and "
            "restart. Time goes on from the ledger's, or limits and ages would be wrong: times in "
            "`events` are ahead by that much, and rent may have been counted for a leap of the "
            "clock, so that the day's cap is reached too early"
        )


def seconds_so_far() -> int:
    """Since 2026 began, by this host's clock."""
    return int(time.time()) - _2026


def _next_epoch(before: int) -> int:
    """Later than that of every life before, also of those that a ledger put back knows nothing of,
    and not that of another copy of it: ids hold the epoch."""
    return max(before + 1, seconds_so_far())


class LedgerStore:
    """Takes the state directory. Raises what `Ledger.open` raises.

    `core` is the version of the core whose decisions are written, where an entry names none.
    """

    def __init__(self, state_dir: Path, limits: JournalLimits, core: str = "") -> None:
        self._limits = limits
        self._core = core
        self._path = state_dir / LEDGER_FILE
        with disk_refusals(state_dir):
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_disk(self._path)
            self._lock = StateLock(state_dir)
        self._free_then = 0
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        self.copier = Copier(self._path)
        self.copier.start()

    @property
    def path(self) -> Path:
        """Where the ledger lies."""
        return self._path

    def _open(self) -> None:
        opened = open_ledger_file(self._path)
        self._db = opened.db
        meta = opened.content.meta
        before = Mark.of(meta)
        try:
            with told_clearly(self._path):
                self._count, self._size = self._db.execute(COUNTED).fetchone()
                self._tried_at = -TRY_ROOM
                self._make_room()
                self._db.execute(f"PRAGMA wal_autocheckpoint = {longest_log(self._path)}")
                self._mark = replace(
                    before, epoch=self._begin(_next_epoch(before.epoch)), copied=False
                )
                self._note_places()
        except BaseException:
            self._db.close()
            raise
        self._marker = Marker(self._path)
        self._marker.write(self._mark, durably=True)
        self.restored = Restored(
            before.ledger_id,
            self._mark.epoch,
            before.last_time,
            opened.content.rows,
            opened.told,
            max(0.0, before.last_time - time.time()),
        )

    def _begin(self, epoch: int) -> int:
        """A new epoch, on the disk before anything is named after it, and not in the log alone."""
        try:
            with Transaction(self._db):
                write_meta(self._db, "epoch", str(epoch))
                self._db.execute("DELETE FROM meta WHERE key = ?", (COPIED,))
        except LedgerWriteFailed as failed:
            raise unavailable(self._path, failed) from failed
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return epoch

    def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Writes everything or nothing. Raises `LedgerWriteFailed`."""
        self._check_place()
        try:
            self._write(at, rows, entries)
        except LedgerWriteFailed as failed:
            if not self._make_room(pages_of(rows, entries)):
                raise LedgerWriteFailed(f"{failed}{why_no_room(self._path)}") from failed
            try:
                self._write(at, rows, entries)
            except LedgerWriteFailed as again:
                self._hold_off()
                raise LedgerWriteFailed(f"{again}{why_no_room(self._path)}") from again
        self._marker.write(self._mark)
        if rows:
            self.copier.rows_changed()

    def _write(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        mark = replace(self._mark, commits=self._mark.commits + 1, last_time=float(at))
        with Transaction(self._db):
            for row in rows:
                write_row(self._db, row)
            size = self._size + sum(self._write_entry(entry) for entry in entries)
            count, size = self._trim(self._count + len(entries), size)
            write_meta(self._db, "commits", str(mark.commits))
            write_meta(self._db, "last_time", repr(mark.last_time))
        self._count, self._size, self._mark = count, size, mark

    def _make_room(self, need: int = 0) -> bool:
        """Empties the log, which otherwise keeps its size, and where the ledger is what fills its
        disk, drops history for `need` more pages; whether it is worth another try."""
        now = time.monotonic()
        try:
            free = free_pages(self._path)
            if now - self._tried_at < TRY_ROOM and free <= self._free_then:
                return False
            made = self._emptied() and (self._has_room(need) or self._forget(need))
        except (OSError, sqlite3.Error, LedgerWriteFailed):
            made = False  # that it cannot be written is told by the write itself
        if not made:
            self._hold_off()
        return made

    def _hold_off(self) -> None:
        """Nothing more is tried for a while, or until the disk has more room."""
        self._tried_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._free_then = free_pages(self._path)

    def _emptied(self) -> bool:
        cut_log(self._path)
        # Only a lack of room is worth it to close what works: other faults pass by themselves.
        roomy = free_pages(self._path) >= SPARE_PAGES
        if not empty_log(self._db) and (roomy or not self._alone()):
            return False
        bound(self._db, self._path)
        return True

    def _alone(self, *, compact: bool = False) -> bool:
        """A connection of another kind does it: ours is closed for that, and opened again."""
        self._db.close()
        try:
            return empty_alone(self._path, compact=compact)
        finally:
            self._db = connect(str(self._path))
            with contextlib.suppress(sqlite3.Error):  # told by the write that comes next
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("SELECT count(*) FROM meta").fetchone()  # makes the log
            self._note_places()

    def _has_room(self, need: int) -> bool:
        fits = spare_pages(self._db) >= need + SPARE_PAGES
        return fits and free_pages(self._path) >= need + SPARE_PAGES

    def _forget(self, need: int) -> bool:
        """Rows are what a life begins from; the oldest history goes for them, as little as does."""
        if not fills_its_disk(self._path):
            return True
        while not self._has_room(need) and self._count > 1:
            with dropping(self._db), Transaction(self._db):
                # What is dropped takes room in the log: a little at a time.
                step = min(self._size // 8, free_pages(self._path) * PAGE // 8)
                count, size = self._drop(self._count - 1, self._size - step)
            self._count, self._size = count, size
            empty_log(self._db)
            short = free_pages(self._path) < need + SPARE_PAGES
            if short and not self._alone(compact=True) and not is_small(self._path):
                return False  # others have taken the disk: history would be given up for nothing
            bound(self._db, self._path)
        return True

    def _write_entry(self, entry: JournalEntry) -> int:
        told = entry if entry.core else replace(entry, core=self._core)
        return write_entry(self._db, replace(told, seq=0), self.restored.epoch)

    def _note_places(self) -> None:
        self._files = [file for file in (self._path, log_of(self._path)) if file.exists()]
        self._places = [place_of(file) for file in self._files]

    def _check_place(self) -> None:
        """SQLite goes on writing to a file that has been removed: nobody would find it again."""
        for path, place in zip(self._files, self._places, strict=True):
            try:
                found = place_of(path)
            except OSError as bad:
                raise taken_away(path, bad.strerror or repr(bad)) from bad
            if found != place:
                raise taken_away(path, "replaced by another file")

    def _trim(self, count: int, size: int) -> tuple[int, int]:
        """Drops the oldest entries, a few more than needed so that it is not done every time."""
        if count <= self._limits.entries and size <= self._limits.size:
            return count, size
        return self._drop(self._limits.entries - _TRIM_STEP, self._limits.size, count, size)

    def _drop(
        self, entries: int, limit: int, count: int | None = None, size: int | None = None
    ) -> tuple[int, int]:
        """Drops the oldest entries until there are at most so many, of at most so many bytes, but
        never the last one; how many there are then, and their size."""
        count = self._count if count is None else count
        size = self._size if size is None else size
        last = 0
        for seq, entry_size in self._db.execute(SIZES):
            if count <= 1 or (count <= entries and size <= limit):
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


def pages_of(rows: Sequence[Row], entries: Sequence[JournalEntry]) -> int:
    """About how many pages they take."""
    texts = [row.doc for row in rows if row.doc is not None]
    told = [(entry.events, entry.plan) for entry in entries]
    size = sum(len(dump(text)) for text in (*texts, *told))
    return size // PAGE + sum(len(entry.quiet) for entry in entries) // PAGE


def place_of(path: Path) -> tuple[int, int]:
    """Which file stands at a path."""
    found = path.stat()
    return found.st_dev, found.st_ino
