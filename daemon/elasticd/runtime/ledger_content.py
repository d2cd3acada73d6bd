"""What is in a ledger: its tables, and whether rows and identity are as they were written.

SQLite checks how its pages hang together, not what stands in them. So every row and every value of
`meta` carries a checksum, and one that does not match is never run with.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.core.fleet import Row
from elasticd.runtime.ledger_errors import ContentDamaged, passes

SCHEMA_VERSION = 2
CHECKED_SINCE = 2
"""The first schema whose rows carry checksums."""

APPLICATION_ID = 0x656C6473
"""`elds`: tells our file from any other program's SQLite file."""

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID, STRICT;
CREATE TABLE rows (
    kind TEXT NOT NULL, id TEXT NOT NULL, doc TEXT NOT NULL, crc INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID, STRICT;
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, epoch INTEGER NOT NULL,
    events TEXT NOT NULL, plan TEXT NOT NULL, size INTEGER NOT NULL,
    core TEXT NOT NULL DEFAULT '', quiet BLOB NOT NULL DEFAULT x'', crc INTEGER
) STRICT;
"""

_META = {
    True: "SELECT CAST(key AS BLOB), CAST(value AS BLOB), crc FROM meta",
    False: "SELECT CAST(key AS BLOB), CAST(value AS BLOB), NULL FROM meta",
}
_ROWS = {
    True: "SELECT CAST(kind AS BLOB), CAST(id AS BLOB), CAST(doc AS BLOB), crc FROM rows",
    False: "SELECT CAST(kind AS BLOB), CAST(id AS BLOB), CAST(doc AS BLOB), NULL FROM rows",
}
"""By whether the schema has checksums."""

_IDENTITY = ("ledger_id", "epoch", "last_time")


@dataclass(frozen=True, slots=True)
class Content:
    """Identity and rows of a ledger, each of them checked.

    `elsewhere`: what is damaged beside them, in the journal or in no table at all; empty: nothing.
    """

    meta: Mapping[str, str]
    rows: tuple[Row, ...]
    elsewhere: str = ""


def connect(target: str, *, uri: bool = False) -> sqlite3.Connection:
    """Autocommit: every transaction is opened and closed by name, none by the driver."""
    return sqlite3.connect(
        target, uri=uri, isolation_level=None, timeout=5.0, check_same_thread=False
    )


def checksum(*parts: str | bytes) -> int:
    """Of texts or bytes that stand together."""
    return zlib.crc32(b"\0".join(p.encode() if isinstance(p, str) else p for p in parts))


def dump(value: Any) -> str:
    """JSON as it is written; NaN and infinity are refused."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def schema_of(db: sqlite3.Connection) -> int:
    """The schema that the file is in."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def write_meta(db: sqlite3.Connection, key: str, value: str) -> None:
    """One value of the identity, with its checksum."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, checksum(key, value)))


def write_row(db: sqlite3.Connection, row: Row) -> None:
    """A row as it is now; one without a document goes."""
    if row.doc is None:
        db.execute("DELETE FROM rows WHERE kind = ? AND id = ?", (row.kind, row.id))
        return
    doc = dump(row.doc)
    crc = checksum(row.kind, row.id, doc)
    db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", (row.kind, row.id, doc, crc))


def flaw(db: sqlite3.Connection, table: str = "") -> str:
    """What SQLite finds wrong with its pages, of one table or the whole file; empty: nothing."""
    asked = f"PRAGMA quick_check('{table}')" if table else "PRAGMA quick_check(1)"
    try:
        found = str(db.execute(asked).fetchone()[0])
    except sqlite3.DatabaseError as bad:
        if passes(bad):
            raise
        return str(bad)
    return "" if found == "ok" else " ".join(found.split())


def read_content(db: sqlite3.Connection) -> Content:
    """Everything a life begins from. Raises `ContentDamaged` where any of it does not hold."""
    try:
        elsewhere = flaw(db)
        for table in ("meta", "rows") if elsewhere else ():
            if found := flaw(db, table):
                raise ContentDamaged(found)
        checked = schema_of(db) >= CHECKED_SINCE
        content = Content(dict(_meta(db, checked)), tuple(_rows(db, checked)), elsewhere)
        missing = [key for key in _IDENTITY if key not in content.meta]
        if missing:
            raise ContentDamaged(f"no {', '.join(missing)} in it")
        int(content.meta["epoch"]), float(content.meta["last_time"])
        int(content.meta.get("commits", "0"))
    except (sqlite3.DatabaseError, ValueError) as bad:
        if isinstance(bad, sqlite3.Error) and passes(bad):
            raise
        raise ContentDamaged(str(bad)) from bad
    return content


def _meta(db: sqlite3.Connection, checked: bool) -> Iterator[tuple[str, str]]:
    for key, value, crc in db.execute(_META[checked]):
        if checked and not _holds(crc, key, value):
            raise ContentDamaged(f"{_name(key)} does not match its checksum")
        yield key.decode(), value.decode()


def _rows(db: sqlite3.Connection, checked: bool) -> Iterator[Row]:
    """As bytes first: damaged text must fail the checksum, not the driver."""
    for kind, key, doc, crc in db.execute(_ROWS[checked]):
        if checked and not _holds(crc, kind, key, doc):
            raise ContentDamaged(f"the row {_name(kind, key)} does not match its checksum")
        told = json.loads(doc)
        if not isinstance(told, dict):
            raise ContentDamaged(f"the row {_name(kind, key)} is no document")
        yield Row(kind.decode(), key.decode(), told)


def _holds(crc: object, *parts: object) -> bool:
    """Damage may also turn a value into none, or into one of another type."""
    texts = [part for part in parts if isinstance(part, bytes)]
    return len(texts) == len(parts) and checksum(*texts) == crc


def _name(*parts: object) -> str:
    texts = [p.decode(errors="replace") if isinstance(p, bytes) else repr(p) for p in parts]
    return repr(" ".join(texts))
