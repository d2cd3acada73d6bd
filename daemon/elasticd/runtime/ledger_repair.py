"""A ledger whose journal is damaged, and nothing else: written anew, with what can still be read.

Damaged pages may claim others that belong to rows, so the file is not gone on with. It is kept
beside the new one, for those who want to look.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

from elasticd.runtime.ledger_content import (
    APPLICATION_ID,
    SCHEMA,
    SCHEMA_VERSION,
    Content,
    connect,
    dump,
    write_meta,
    write_row,
)
from elasticd.runtime.ledger_copy import clear, dated, make_private, sync
from elasticd.runtime.ledger_errors import ContentDamaged, unavailable
from elasticd.runtime.ledger_journal import LAST_SEQ, JournalEntry, read_entries, write_entry


def write_new(
    path: Path, content: Content, like: Path, journal: Iterable[JournalEntry] = ()
) -> Path:
    """A complete ledger of the present schema beside `path`, on the disk, not yet in its place."""
    draft = path.with_name(f"{path.name}.new")
    clear(draft)
    try:
        make_private(draft, like)
        with contextlib.closing(connect(str(draft))) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(f"BEGIN; {SCHEMA}")
            _fill(db, content, journal)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("COMMIT")
        sync(draft)
    except BaseException:
        clear(draft)  # what it takes of a full disk is needed
        raise
    return draft


def _fill(db: sqlite3.Connection, content: Content, journal: Iterable[JournalEntry]) -> None:
    for key, value in content.meta.items():
        write_meta(db, key, value)
    for row in content.rows:
        write_row(db, row)
    for entry in journal:
        # Under their numbers: readers ask for what comes after the last one they have seen.
        write_entry(db, entry, entry.epoch)


def rebuild(db: sqlite3.Connection, path: Path, content: Content) -> str:
    """Closes `db` and puts a whole file in its place. Says what was done, for people."""
    real = path.resolve()
    entries, lost = _what_is_left(db)
    draft = write_new(real, content, real, entries)
    try:
        # The log is applied and gone, or the damaged file's would be applied to the new one.
        if db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
            raise unavailable(path, "another program has it open")
        db.close()
        aside = dated(real, "damaged", real.suffix)
        os.link(real, aside)
        draft.rename(real)
    finally:
        clear(draft)
    sync(real.parent)
    gaps = "1 gap" if lost == 1 else f"{lost} gaps"
    return (
        f"the ledger's journal was damaged ({content.elsewhere}), its rows were not: the file was "
        f"written anew, with {gaps} where it could not be read; the damaged one is {aside}"
    )


def _what_is_left(db: sqlite3.Connection) -> tuple[list[JournalEntry], int]:
    """Entries whose numbers rise and that can be written again, and how much else there was."""
    try:
        found = list(read_entries(db))
    except ContentDamaged:
        return [], 1  # there is no journal any more
    kept = _rising([entry for entry in found if _is_fit(entry)])
    damaged = sum(entry.damaged for entry in kept)
    return kept, damaged + len(found) - len(kept)


def _is_fit(entry: JournalEntry) -> bool:
    """An entry without a checksum may hold anything; what is not JSON cannot be written."""
    try:
        dump(entry.events), dump(entry.plan)
    except (ValueError, RecursionError):
        return False
    return 0 < entry.seq <= LAST_SEQ and 0 <= entry.epoch <= LAST_SEQ


def _rising(entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """As many of them as can stand in one row: a damaged number must not cost those behind it."""
    ends: list[int] = []  # the smallest number that a row of each length can end with
    places: list[int] = []
    for entry in entries:
        place = bisect_left(ends, entry.seq)
        ends[place : place + 1] = [entry.seq]
        places.append(place)
    kept: list[JournalEntry] = []
    wanted = len(ends) - 1
    for entry, place in zip(reversed(entries), reversed(places), strict=True):
        if place == wanted:
            kept.append(entry)
            wanted -= 1
    return kept[::-1]
