"""Whose file it is and of which schema, read from its bytes.

SQLite itself leaves traces on the way in: opening a file in WAL mode applies the log beside it, and
closing removes it. A file that will be refused is not to be touched, so its header is read here
first, the header in the log included, where a newer program may have written and been killed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_WAL_HEADER = 32
_FRAME_HEADER = 24


@dataclass(frozen=True, slots=True)
class Header:
    """`application` and `schema` are what the program that made the file wrote there."""

    application: int
    schema: int


def log_of(ledger: Path) -> Path:
    """Where SQLite keeps the log: beside the file itself, also where a link leads to it."""
    return beside(ledger, "-wal")


def beside(ledger: Path, end: str) -> Path:
    """A file of SQLite's own that belongs to a ledger."""
    real = ledger.resolve()
    return real.with_name(f"{real.name}{end}")


def mark_of(ledger: Path) -> Path:
    """Where it stands how far a ledger has come (`runtime.ledger_mark`)."""
    return ledger.with_name(f"{ledger.name}-mark")


def read_header(path: Path) -> Header | None:
    """`None`: not a file of SQLite. An empty file is one of nobody. Raises `OSError`."""
    with path.open("rb") as file:
        head = file.read(_HEADER)
    if not head:
        return Header(0, 0)
    if len(head) < _HEADER or not head.startswith(_MAGIC):
        return None
    return _header(_latest_in_log(log_of(path)) or head)


def _header(page: bytes) -> Header:
    (schema,) = struct.unpack(">I", page[60:64])
    (application,) = struct.unpack(">I", page[68:72])
    return Header(application, schema)


def _latest_in_log(path: Path) -> bytes | None:
    """The first page as the last transaction in the log left it; `None`: it is not in there."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    latest = pending = None
    with file:
        head = file.read(_WAL_HEADER)
        if len(head) < _WAL_HEADER:
            return None
        (size,) = struct.unpack(">I", head[8:12])
        while len(frame := file.read(_FRAME_HEADER)) == _FRAME_HEADER:
            number, closes = struct.unpack(">II", frame[:8])
            page = file.read(size)
            if frame[8:16] != head[16:24] or len(page) < size:
                break  # left over from before the log was begun anew, or cut off
            if number == 1:
                pending = page
            if closes:
                latest = pending
    return latest
