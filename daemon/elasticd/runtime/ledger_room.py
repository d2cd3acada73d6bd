"""Room for a ledger on a small disk: what it needs, how it is bounded, and how it comes by it.

The log must be brought into the file before it can be begun anew, so a disk that it has filled
would stay full for good. Therefore the file may not take all there is, and what can be made again
goes first: what failed transactions left in the log, then SQLite's shared memory, 32 KiB.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from elasticd.runtime.ledger_content import connect
from elasticd.runtime.ledger_errors import LedgerUnavailable
from elasticd.runtime.ledger_header import beside, log_of

LEAST_DISK = 128 * 1024
"""Bytes that a disk must have for a small ledger, its log and SQLite's shared memory beside what
else stands in a state directory."""

SMALL_DISK = 16 * 1024 * 1024
"""Bytes."""

PAGE = 4096
"""Bytes of a page, and of what a file takes on a disk at least."""

_FEWEST_PAGES, _MOST_PAGES = 4, 1000
_ROOM_PER_PAGE = 16 * PAGE
"""Bytes that are free for each page in the log: it takes a sixteenth of what there is."""

_MOST_IN_FILE = 2**30 - 1
"""Pages, as SQLite has it by itself."""

_COMMIT = 7
"""Pages that a small commit writes into the log."""

_SHARE = 4
"""A ledger that takes one part in so many of its disk is what fills it."""

_LOG_HEADER, _FRAME_HEADER = 32, 24


def check_disk(ledger: Path) -> None:
    """Raises `LedgerUnavailable` where no ledger can be used however empty the disk is."""
    try:
        disk = os.statvfs(ledger.resolve().parent)
    except FileNotFoundError:
        return  # a link to a disk that is not mounted is told where the ledger is opened
    if 0 < (whole := disk.f_blocks * disk.f_frsize) < LEAST_DISK:
        raise LedgerUnavailable(
            f"{ledger}: its disk is too small for a ledger: {whole // 1024} KiB in all, "
            f"{disk.f_bavail * disk.f_frsize // 1024} KiB free; {LEAST_DISK // 1024} KiB is the "
            "least, 64 MiB keep some history: use a larger disk or another state_dir"
        )


def free_pages(ledger: Path) -> int:
    """Pages that the disk still takes."""
    disk = os.statvfs(ledger.resolve().parent)
    return disk.f_bavail * disk.f_frsize // PAGE


def longest_log(ledger: Path) -> int:
    """Pages in the log after which they are brought into the file: fewer on a small disk, where
    the log would else take the room that they need there."""
    return max(_FEWEST_PAGES, min(_MOST_PAGES, free_pages(ledger) * PAGE // _ROOM_PER_PAGE))


def reserve(ledger: Path) -> int:
    """Pages that the file must leave to the log."""
    return longest_log(ledger) + _COMMIT


def bound(db: sqlite3.Connection, ledger: Path) -> None:
    """Sets how long log and file may become; to be asked for while the log is empty."""
    grow = max(0, free_pages(ledger) - reserve(ledger))
    most = min(_MOST_IN_FILE, number(db, "page_count") + grow)
    db.execute(f"PRAGMA max_page_count = {most}")
    db.execute(f"PRAGMA wal_autocheckpoint = {longest_log(ledger)}")


@contextlib.contextmanager
def dropping(db: sqlite3.Connection) -> Iterator[None]:
    """What is dropped meanwhile is not written once more, as zeros: there is no room for that."""
    before = number(db, "secure_delete")
    db.execute("PRAGMA secure_delete = OFF")
    try:
        yield
    finally:
        db.execute(f"PRAGMA secure_delete = {before}")


def spare_pages(db: sqlite3.Connection) -> int:
    """Pages that rows and journal can still take within the bound."""
    more = number(db, "max_page_count") - number(db, "page_count")
    return more + number(db, "freelist_count")


def number(db: sqlite3.Connection, pragma: str) -> int:
    """A value that SQLite tells of the file."""
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def fills_its_disk(ledger: Path) -> bool:
    """Whether the ledger itself takes a good part of its disk, so that less of it would help."""
    disk = os.statvfs(ledger.resolve().parent)
    taken = 0
    for file in (ledger, log_of(ledger), beside(ledger, "-shm")):
        with contextlib.suppress(FileNotFoundError):
            taken += file.stat().st_size
    return taken * _SHARE >= disk.f_blocks * disk.f_frsize


def is_small(ledger: Path) -> bool:
    """Whether the disk is so small that hardly anything but the ledger can be what fills it."""
    disk = os.statvfs(ledger.resolve().parent)
    return disk.f_blocks * disk.f_frsize <= SMALL_DISK


def why_no_room(ledger: Path) -> str:
    """What to add where a write has failed although room was to be made; empty: nothing."""
    try:
        disk, fills = os.statvfs(ledger.resolve().parent), fills_its_disk(ledger)
    except OSError:
        return ""
    if not fills or free_pages(ledger) > _COMMIT + _MOST_PAGES:
        return ""
    return (
        ": what is to be written does not fit, whatever history is given up; its disk has "
        f"{disk.f_blocks * disk.f_frsize // 1024} KiB in all: make room there, or use a larger one"
    )


def cut_log(ledger: Path) -> None:
    """Gives back what stands in the log after its last transaction, left by one that failed.

    To be called by the one who writes, outside of a transaction: nobody reads there.
    """
    log = log_of(ledger)
    with contextlib.suppress(FileNotFoundError), log.open("r+b") as file:
        end = _end_of_transactions(file.fileno())
        if 0 < end < os.fstat(file.fileno()).st_size:
            file.truncate(end)


def _end_of_transactions(log: int) -> int:
    """Bytes; 0 where the log does not tell."""
    head = os.pread(log, _LOG_HEADER, 0)
    if len(head) < _LOG_HEADER:
        return 0
    (size,) = struct.unpack(">I", head[8:12])
    end, at = _LOG_HEADER, _LOG_HEADER
    while len(frame := os.pread(log, _FRAME_HEADER, at)) == _FRAME_HEADER:
        at += _FRAME_HEADER + size
        if frame[8:16] != head[16:24]:
            break  # of before the log was begun anew
        if frame[4:8] != b"\0\0\0\0":
            end = at
    return end


def empty_log(db: sqlite3.Connection) -> bool:
    """Brings the log into the file and empties it; whether that could be done."""
    try:
        (busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return False  # that it cannot be written is told by the write itself
    return not busy


def empty_alone(ledger: Path, *, compact: bool) -> bool:
    """The same without shared memory, whose room it uses: while no other connection is open.

    `compact`: what is free within the file is given back to the disk, too.
    """
    with (
        contextlib.suppress(OSError, sqlite3.Error),
        contextlib.closing(connect(str(ledger))) as db,
    ):
        # This first, and before anything that reads: then there is no shared memory to be opened.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("SELECT count(*) FROM meta").fetchone()
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        # Nobody else has it open by now, and this connection keeps the index in memory.
        beside(ledger, "-shm").unlink(missing_ok=True)
        if not empty_log(db):
            return False
        if compact:
            db.execute("VACUUM")
            return empty_log(db)
        return True
    return False
