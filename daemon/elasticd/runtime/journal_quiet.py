"""The steps between two entries of the journal: what came in, at which time, and nothing more.

They changed nothing and decided nothing, so nobody reads them but `replay`, which needs every one:
the core remembers what it was told. Packed, they are lines of JSON, compressed:

* `[TICKS, EVENT …]`: a step. `TICKS` is its time, exactly: by how many representable numbers it
  lies after the time of the line before (the first of a pack: after 0).
* `{"began": {"ledger_id", "epoch", "rows": [[KIND, ID, DOC] …]}}`: a life of the controller begins
  here, from these rows.
* `{"memory": …}`: what the core remembers here (`core_memory`); all that follows begins anew.
* `{"gap": [SINCE, UNTIL]}`: the steps between these times could not be written.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.core.fleet import Row
from elasticd.runtime.journal_fold import Unreadable

LARGEST = 64 * 1024 * 1024
"""Bytes that one pack may have when it is unpacked; a damaged one could claim anything."""


@dataclass(frozen=True, slots=True)
class Began:
    """A life of the controller begins."""

    ledger_id: str
    epoch: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps between two times, in seconds, were lost."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class QuietStep:
    """One step; `events` as `Unfolder` reads them."""

    at: float
    events: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """What the core remembers; `core_memory.core_of` reads it."""

    memory: Any


Line = Began | Gap | Memory | QuietStep


class Pack:
    """Collects lines until they are taken. `size` in bytes before compression."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._ticks = 0
        self.size = 0
        self.since: float | None = None

    def step(self, at: float, events: Sequence[Any]) -> None:
        """One quiet step, its events as `Folder.brief` gives them."""
        ticks = _ticks(at)
        self._add([ticks - self._ticks, *events])
        self._ticks = ticks
        if self.since is None:
            self.since = at

    def began(self, life: Began) -> None:
        """A life begins."""
        rows = [[row.kind, row.id, row.doc] for row in life.rows]
        self._add({"began": {"ledger_id": life.ledger_id, "epoch": life.epoch, "rows": rows}})

    def gap(self, gap: Gap) -> None:
        """Steps before the next line are lost."""
        self._add({"gap": [gap.since, gap.until]})

    def memory(self, memory: Any) -> None:
        """The core remembers this, after the line before."""
        self._add({"memory": memory})

    def take(self) -> bytes:
        """Everything, packed; empty bytes for nothing."""
        lines, self._lines = self._lines, []
        self._ticks, self.size, self.since = 0, 0, None
        return pack(lines)

    def _add(self, line: Any) -> None:
        text = json.dumps(line, allow_nan=False, separators=(",", ":"))
        self._lines.append(text)
        self.size += len(text) + 1


def pack(lines: Sequence[str]) -> bytes:
    """Lines as they lie in the ledger."""
    return zlib.compress("\n".join(lines).encode()) if lines else b""


def unpacked(data: bytes) -> list[str]:
    """The lines again. Raises `Unreadable`."""
    if not data:
        return []
    engine = zlib.decompressobj()
    try:
        text = engine.decompress(data, LARGEST).decode()
    except (zlib.error, UnicodeDecodeError) as bad:
        raise Unreadable(f"its quiet steps cannot be unpacked: {bad}") from bad
    if not engine.eof:
        raise Unreadable("its quiet steps are cut off")
    return text.split("\n")


def read_quiet(data: bytes) -> Iterator[Line]:
    """What `Pack` collected. Raises `Unreadable`."""
    ticks = 0
    for text in unpacked(data):
        try:
            line = json.loads(text)
            if isinstance(line, list):
                ticks += line[0]
                yield QuietStep(_time(ticks), tuple(line[1:]))
            else:
                yield _mark(line)
        except (ValueError, TypeError, LookupError, struct.error) as bad:
            raise Unreadable(f"a quiet step cannot be read: {bad!r}") from bad


def _mark(line: Any) -> Began | Gap | Memory:
    if "gap" in line:
        since, until = line["gap"]
        return Gap(since, until)
    if "memory" in line:
        return Memory(line["memory"])
    life = line["began"]
    rows = tuple(Row(kind, key, doc) for kind, key, doc in life["rows"])
    return Began(life["ledger_id"], life["epoch"], rows)


def _ticks(at: float) -> int:
    """The number of a time among all representable ones: neighbours differ by one."""
    number: int = struct.unpack("<q", struct.pack("<d", at))[0]
    return number


def _time(ticks: int) -> float:
    at: float = struct.unpack("<d", struct.pack("<q", ticks))[0]
    return at
