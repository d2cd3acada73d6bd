"""The journal: what happened and why, for people and for replay. No life begins from it.

So damage in here stops nobody: an entry that does not match its checksum, and entries on pages that
cannot be read, are told as such, and what stands after them is still found.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elasticd.runtime.ledger_content import checksum, dump, schema_of
from elasticd.runtime.ledger_errors import ContentDamaged, passes

_ENTRIES = {
    1: "SELECT seq, at, epoch, CAST(events AS BLOB), CAST(plan AS BLOB), x'', x'', NULL"
    " FROM journal WHERE seq > ? AND at >= ? ORDER BY seq",
    2: "SELECT seq, at, epoch, CAST(events AS BLOB), CAST(plan AS BLOB), CAST(core AS BLOB), quiet,"
    " crc FROM journal WHERE seq > ? AND at >= ? ORDER BY seq",
}
"""By schema."""


COUNTED = "SELECT count(*), CAST(total(max(0, min(size, 1000000000))) AS INTEGER) FROM journal"
SIZES = "SELECT seq, max(0, min(size, 1000000000)) FROM journal ORDER BY seq"
"""Sizes in bytes; a number that is damaged, or none any more, is taken for something possible."""

LAST_SEQ = 2**53
"""No journal ever comes to here: a larger number is damage."""

_LATEST = 1e11
"""Seconds since 1970, three thousand years: a later time is damage."""


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
    `damaged`: stands for entries that cannot be read; it belongs to no life (epoch 0), so that
    nothing after it is taken for a difference to what came before.
    """

    at: float
    events: tuple[dict[str, Any], ...]
    plan: dict[str, Any]
    seq: int = 0
    epoch: int = 0
    quiet: bytes = b""
    core: str = ""
    damaged: bool = False


_Raw = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Hole:
    """Entries on pages that cannot be read, or that are gone with them."""

    first: int
    last: int


def write_entry(db: sqlite3.Connection, entry: JournalEntry, epoch: int) -> int:
    """Appends it, under its own number if it has one; returns its size in bytes."""
    events, plan = dump(entry.events).encode(), dump(entry.plan).encode()
    size = len(events) + len(plan) + len(entry.quiet)
    crc = _checksum(float(entry.at), epoch, events, plan, entry.core.encode(), entry.quiet)
    db.execute(
        "INSERT INTO journal (seq, at, epoch, events, plan, size, core, quiet, crc)"
        " VALUES (?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?)",
        (entry.seq or None, entry.at, epoch, events, plan, size, entry.core, entry.quiet, crc),
    )
    return size


def why_not_appended(db: sqlite3.Connection) -> str:
    """What keeps entries from being written that is not the disk; empty: nothing.

    Tries one and takes it back. To be asked of a file in WAL mode, which is not written that way.
    """
    trial = JournalEntry(0.0, (), {})
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            write_entry(db, trial, 0)
            (last,) = db.execute("SELECT max(seq) FROM journal").fetchone()
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    except sqlite3.Error as bad:
        # "Full" without a byte written: its numbers are used up.
        if passes(bad) and bad.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        return f"no entry can be written into it: {bad}"
    return "" if last <= LAST_SEQ else f"its entries are numbered up to {last}"


def read_entries(
    db: sqlite3.Connection, since_seq: int = 0, since: float = 0.0, limit: int | None = None
) -> Iterator[JournalEntry]:
    """At most `limit` entries after `since_seq` and not before `since` (seconds), oldest first."""
    at, given = since, 0
    for found in _scan(db, since_seq, since):
        if given == limit:
            return
        entry = _damaged(found, at) if isinstance(found, _Hole) else _entry(found, at)
        at, given = entry.at, given + 1
        yield entry


def read_latest(db: sqlite3.Connection, count: int) -> list[JournalEntry]:
    """The newest entries, at most `count`, oldest of them first."""
    try:
        first = db.execute(
            "SELECT min(seq) FROM (SELECT seq FROM journal ORDER BY seq DESC LIMIT ?)", (count,)
        ).fetchone()[0]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as bad:
        if isinstance(bad, sqlite3.Error) and passes(bad):
            raise
        first = None  # what is wrong is told on the way
    return list(read_entries(db, (first or 1) - 1))[-count:]


def _scan(db: sqlite3.Connection, since_seq: int, since: float) -> Iterator[_Raw | _Hole]:
    """In order up to the first page that cannot be read, then what is found from the other end."""
    query = _query(db)
    last = since_seq
    try:
        for raw in db.execute(query, (last, since)):
            last = raw[0]
            yield raw
    except sqlite3.DatabaseError as bad:
        if passes(bad):
            raise
        beyond = _backwards(db, f"{query} DESC", last, since)
        yield _Hole(last + 1, beyond[-1][0] - 1 if beyond else last + 1)
        yield from reversed(beyond)


def _query(db: sqlite3.Connection) -> str:
    """Raises `ContentDamaged` where there is no journal to be read at all."""
    try:
        query = _ENTRIES[schema_of(db)]
        db.execute(f"{query} LIMIT 0", (0, 0.0)).close()
    except KeyError as unknown:
        raise ContentDamaged(f"it says that its schema is {unknown}") from unknown
    except (sqlite3.DatabaseError, UnicodeDecodeError) as bad:
        if isinstance(bad, sqlite3.Error) and passes(bad):
            raise
        raise ContentDamaged(str(bad)) from bad
    return query


def _backwards(db: sqlite3.Connection, query: str, last: int, since: float) -> list[_Raw]:
    found: list[_Raw] = []
    try:
        found.extend(db.execute(query, (last, since)))  # keeps what comes before the damage
    except sqlite3.DatabaseError as bad:
        if passes(bad):
            raise
        return found
    return found


def _entry(raw: _Raw, before: float) -> JournalEntry:
    seq, at, epoch, events, plan, core, quiet, crc = raw
    if not isinstance(epoch, int) or not isinstance(core, bytes) or not isinstance(quiet, bytes):
        return _damaged(_Hole(seq, seq), before)
    if isinstance(at, float) and 0.0 <= at < _LATEST:
        before = max(before, at)
    else:
        return _damaged(_Hole(seq, seq), before)
    try:
        if crc is not None and _checksum(at, epoch, events, plan, core, quiet) != crc:
            return _damaged(_Hole(seq, seq), before)
        told, decided = json.loads(events), json.loads(plan)
        if isinstance(decided, dict) and all(isinstance(event, dict) for event in told):
            return JournalEntry(at, tuple(told), decided, seq, epoch, quiet, core.decode())
    except (
        TypeError,
        ValueError,
        RecursionError,
    ):  # a value of another type than was written, or no JSON
        return _damaged(_Hole(seq, seq), before)
    return _damaged(_Hole(seq, seq), before)


def _damaged(hole: _Hole, at: float) -> JournalEntry:
    alone = hole.first >= hole.last
    what = f"entry {hole.first} is" if alone else f"entries {hole.first} to {hole.last} are"
    reason = {"subject": "journal", "text": f"{what} damaged and cannot be read"}
    plan = {"actions": [], "reasons": [reason], "wake_at": None}
    return JournalEntry(at, (), plan, max(hole.first, hole.last), damaged=True)


def _checksum(at: float, epoch: int, events: bytes, plan: bytes, core: bytes, quiet: bytes) -> int:
    return checksum(f"{at!r} {epoch}", events, plan, core, quiet)
