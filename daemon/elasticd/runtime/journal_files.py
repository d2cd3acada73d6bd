"""Journals to be replayed: from a ledger, page by page, and as a file that people hand on.

An export is lines of JSON, compressed with gzip: first what it is, then one line for each entry,
with its quiet steps unpacked, so that `zcat` shows all that is in it. What cannot be read is told
as a damaged entry, and reading goes on behind it where that is possible.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from elasticd import __version__
from elasticd.runtime.journal_quiet import pack, unpacked
from elasticd.runtime.journal_scrub import Scrubber
from elasticd.runtime.ledger_journal import JournalEntry, read_entries

FORMAT = 1
_PAGE = 50
"""Entries that are read at once. Between two pages nothing holds the ledger's writer back."""


class NotAnExport(Exception):
    """A file that is no journal, or one of a newer format."""


def ledger_size(db: sqlite3.Connection) -> int:
    """How many entries there are now."""
    count: int = db.execute("SELECT count(*) FROM journal").fetchone()[0]
    return count


def ledger_entries(db: sqlite3.Connection) -> Iterator[JournalEntry]:
    """All entries, oldest first, also those that come while it reads."""
    seq = 0
    while True:
        page = list(read_entries(db, since_seq=seq, limit=_PAGE))
        yield from page
        if len(page) < _PAGE:
            return
        seq = page[-1].seq


@dataclass(frozen=True, slots=True)
class Exported:
    """`size` in bytes; `hidden`: values that looked like secrets."""

    entries: int
    size: int
    hidden: int


def export(entries: Iterable[JournalEntry], size: int, path: Path) -> Exported:
    """Writes a journal to hand on. Raises `FileExistsError`: nothing is overwritten."""
    scrubber = Scrubber()
    count = 0
    with path.open("xb") as raw, gzip.open(raw, "wt", encoding="utf-8") as file:
        _put(file, {"elasticd_journal": FORMAT, "version": __version__, "entries": size})
        for entry in entries:
            _put(file, _written(entry, scrubber))
            count += 1
    return Exported(count, path.stat().st_size, scrubber.hidden)


def _put(file: IO[str], value: Any) -> None:
    file.write(json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False))
    file.write("\n")


def _written(entry: JournalEntry, scrubber: Scrubber) -> dict[str, Any]:
    place = {"seq": entry.seq, "epoch": entry.epoch}
    try:
        quiet = [json.loads(line) for line in unpacked(entry.quiet)]
    except ValueError:
        return {**place, "damaged": True}
    if entry.damaged:
        return {**place, "damaged": True}
    return {
        **place,
        "at": entry.at,
        "core": entry.core,
        "quiet": scrubber.clean(quiet),
        "events": scrubber.clean(entry.events),
        "plan": scrubber.clean(entry.plan),
    }


def export_size(path: Path) -> int:
    """How many entries an export should have. Raises `NotAnExport`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(file.readline())
            if head["elasticd_journal"] <= FORMAT:
                return int(head["entries"])
            newer = f"exported by elasticd {head['version']} in a newer format"
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, TypeError, LookupError) as bad:
        raise NotAnExport(f"no export of a journal: {bad!r}") from bad
    raise NotAnExport(newer)


def export_entries(path: Path) -> Iterator[JournalEntry]:
    """All entries of an export, oldest first."""
    seq = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            file.readline()
            for line in file:
                entry = _of_line(line, seq)
                seq = entry.seq
                yield entry
    except (gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError):
        yield _damaged(seq + 1)  # and whatever comes after it


def _of_line(line: str, before: int) -> JournalEntry:
    """One entry, which should follow the one numbered `before`."""
    try:
        told = json.loads(line)
        seq, epoch = int(told["seq"]), int(told["epoch"])
        if told.get("damaged"):
            return _damaged(seq)
        events, plan = told["events"], told["plan"]
        if not isinstance(events, list) or not isinstance(plan, dict):
            return _damaged(seq)
        quiet = pack([json.dumps(part, separators=(",", ":")) for part in told["quiet"]])
        at, core = float(told["at"]), str(told["core"])
        return JournalEntry(at, tuple(events), plan, seq, epoch, quiet, core)
    except (ValueError, TypeError, LookupError):
        return _damaged(before + 1)


def _damaged(seq: int) -> JournalEntry:
    return JournalEntry(0.0, (), {}, seq, damaged=True)
