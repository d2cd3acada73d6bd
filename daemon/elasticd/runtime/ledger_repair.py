"""A ledger whose journal is damaged, and nothing else: written anew, with what can still be read.

Damaged pages may claim others that belong to rows, so the file is not gone on with. It is kept
beside the new one, for those who want to look.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from elasticd.runtime.ledger_content import (
    APPLICATION_ID,
    SCHEMA,
    SCHEMA_VERSION,
    Content,
    connect,
    write_meta,
    write_row,
)
from elasticd.runtime.ledger_copy import clear, dated, make_private, sync
from elasticd.runtime.ledger_errors import unavailable
from elasticd.runtime.ledger_journal import JournalEntry, read_entries, write_entry


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
    entries = list(read_entries(db))
    lost = sum(entry.damaged for entry in entries)
    # The log is applied and gone, or the damaged file's would be applied to the new one.
    if db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
        raise unavailable(path, "another program has it open")
    db.close()
    draft = write_new(real, content, real, entries)
    aside = dated(real, "damaged", real.suffix)
    os.link(real, aside)
    draft.rename(real)
    sync(real.parent)
    return (
        f"the ledger's journal was damaged ({content.elsewhere}), its rows were not: the file was "
        f"written anew, with {lost} gaps where it could not be read; the damaged one is {aside}"
    )
