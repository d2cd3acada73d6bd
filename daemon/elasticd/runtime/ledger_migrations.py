"""Brings a ledger of an earlier release to the schema of this one, one step after the other.

A complete backup lies beside it before the first change. Each step is one transaction that ends
with the number of the schema it has reached: killed at any moment, the next start goes on from
there, and a full disk leaves the file as it was.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.runtime.ledger_content import Content, checksum, schema_of
from elasticd.runtime.ledger_copy import COPIED, clear, copy_ledger, dated, read_copy
from elasticd.runtime.ledger_errors import (
    ContentDamaged,
    LedgerUnavailable,
    LedgerWriteFailed,
    passes,
)
from elasticd.runtime.ledger_transaction import Transaction


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: what has to be done to a file of the schema before, to make it one of `to`."""

    to: int
    apply: Callable[[sqlite3.Connection], None]


def _checksums_and_quiet_steps(db: sqlite3.Connection) -> None:
    """Rows and identity get checksums; the journal tells of quiet steps and of the core."""
    db.create_function("checksum", -1, checksum, deterministic=True)
    db.execute("ALTER TABLE meta ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE meta SET crc = checksum(key, value)")
    db.execute("ALTER TABLE rows ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE rows SET crc = checksum(kind, id, doc)")
    db.execute("ALTER TABLE journal ADD COLUMN core TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE journal ADD COLUMN quiet BLOB NOT NULL DEFAULT x''")
    db.execute("DROP INDEX journal_at")  # asked by nobody, and a page more in every commit
    # Entries of before stay without one: writing all of them again could fill the disk.
    db.execute("ALTER TABLE journal ADD COLUMN crc INTEGER")


MIGRATIONS: Sequence[Migration] = (Migration(2, _checksums_and_quiet_steps),)


def migrate(db: sqlite3.Connection, path: Path, content: Content) -> str:
    """Says what was done, for people. `content` is what the file holds.

    Raises `LedgerUnavailable` where the disk has no room for it.
    """
    began = schema_of(db)
    try:
        backup = _backup(db, path, began, content)
        for step in MIGRATIONS:
            if step.to > schema_of(db):
                with Transaction(db):
                    step.apply(db)
                    db.execute(f"PRAGMA user_version = {step.to}")
    except (OSError, sqlite3.Error, LedgerWriteFailed) as failed:
        if isinstance(failed, sqlite3.Error) and not passes(failed):
            raise
        raise LedgerUnavailable(
            f"{path}: an earlier elasticd wrote it (schema {began}), and it could not be brought "
            f"to this one's ({failed}); the file is as it was and is tried again: make room "
            f"for twice its size, {2 * path.stat().st_size / 1e6:.1f} MB"
        ) from failed
    return (
        f"the ledger was brought from schema {began} to {schema_of(db)}; "
        f"as it was before, it is in {backup}"
    )


def _backup(db: sqlite3.Connection, path: Path, schema: int, content: Content) -> Path:
    """A start that was cut off has made one already: one is enough."""
    pattern = f"{path.stem}.schema{schema}-*{path.suffix}"
    for draft in path.parent.glob(f"{pattern}.new"):
        clear(draft)
    for earlier in sorted(path.parent.glob(pattern)):
        if _is_of(earlier, content):
            return earlier
    target = dated(path, f"schema{schema}", path.suffix)
    copy_ledger(db, path, target, lambda: None)
    return target


def _is_of(backup: Path, content: Content) -> bool:
    with contextlib.suppress(ContentDamaged, OSError, sqlite3.Error):
        told = read_copy(backup)
        same = {**content.meta, COPIED: content.meta["epoch"]}
        return dict(told.meta) == same and told.rows == content.rows
    return False
