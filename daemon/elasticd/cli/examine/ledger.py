"""The ledger and its copies: whose, of which schema, whole or not. Reads; repairs nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.cli.ledger_peek import peek
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger_content import SCHEMA_VERSION, Content, read_content, schema_of
from elasticd.runtime.ledger_copier import PERIOD
from elasticd.runtime.ledger_copy import age_of, in_words, previous_of, read_copy
from elasticd.runtime.ledger_errors import ContentDamaged
from elasticd.runtime.ledger_file import unreadable
from elasticd.runtime.ledger_journal import read_entries

_BEHIND = 2 * PERIOD
"""Seconds that a copy may be behind rows that have changed since."""


def examine(path: Path) -> Iterator[Finding]:
    """The ledger that lies at `path`, and the copy beside it."""
    subject = "ledger"
    try:
        with peek(path if path.exists() else path.parent) as db:
            db.execute("BEGIN")  # one moment: a controller may write meanwhile
            content = read_content(db)
            yield from _content(db, path, content)
    except ElasticdError as bad:
        yield fail(subject, str(bad), "see above; do not remove it while machines may run")
        return
    except ContentDamaged as bad:
        yield fail(subject, str(unreadable(path, bad)), "see above; do not remove it")
        return
    yield _copy(previous_of(path), content)


def _content(db: sqlite3.Connection, path: Path, content: Content) -> Iterator[Finding]:
    schema = schema_of(db)
    if content.elsewhere:
        yield warn(
            "ledger",
            f"its rows are whole, its journal is damaged: {content.elsewhere}",
            "nothing now: the next start of the controller writes it anew and keeps this file",
        )
    elif lost := sum(entry.damaged for entry in read_entries(db)):
        text = f"its rows are whole; {lost} parts of its journal are damaged and are skipped"
        yield warn("ledger", text, "nothing: only history is lost; see to the disk")
    else:
        size = path.stat().st_size / 1e6
        rows = len(content.rows)
        yield ok("ledger", f"whole: schema {schema}, {rows} rows, {size:.1f} MB")
    if schema < SCHEMA_VERSION:
        yield ok(
            "ledger",
            f"schema {schema}: the next start brings it to schema {SCHEMA_VERSION}, with a backup "
            "beside it",
        )


def _copy(copy: Path, content: Content) -> Finding:
    try:
        same = read_copy(copy).rows == content.rows
        age, written = age_of(copy), copy.stat().st_mtime
    except FileNotFoundError:
        advice = "a controller that runs makes one; see its log, and the room on the disk"
        return warn("ledger copy", "there is none", advice)
    except (ContentDamaged, OSError, sqlite3.Error) as bad:
        advice = "remove it; a controller that runs makes a new one"
        return warn("ledger copy", f"{copy} cannot be used: {bad}", advice)
    told = f"{copy.name} is whole and {in_words(age)} old"
    if not same and float(content.meta["last_time"]) - written > _BEHIND:
        advice = "see the controller's log for why there is no newer one, and the room on the disk"
        return warn("ledger copy", f"{told}, and rows have changed since", advice)
    return ok("ledger copy", told)
