"""What a fetcher tells while it works: one JSON object a line. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from elasticd.weights.foreign import printable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """Bytes on the disk and in all, bytes a second lately; `None`: not known yet.

    `note` says what holds it up, if anything.
    """

    done: int | None = None
    total: int | None = None
    rate: float | None = None
    note: str = ""

    def __str__(self) -> str:
        """As people read it: `34 % of 28.0 GiB, 120 MiB/s`."""
        words = []
        if self.total is not None and self.done is not None:
            percent = 100 * self.done // self.total if self.total else 100
            words.append(f"{percent} % of {size_text(self.total)}")
        if self.rate is not None:
            words.append(f"{size_text(self.rate)}/s")
        if self.note:
            words.append(self.note)
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The weights lie complete in `directory`."""

    directory: str


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """They will not come; `sentence` says why and what to do."""

    sentence: str


Told = FetchProgress | Fetched | FetchFailed


def to_line(told: Told) -> str:
    """The line, without its end."""
    match told:
        case FetchProgress(done, total, rate, note):
            made: dict[str, Any] = {
                "done": done,
                "total": total,
                "rate": rate,
                "note": printable(note),
            }
            return json.dumps({"fetching": made}, ensure_ascii=False)
        case Fetched(directory):
            return json.dumps({"fetched": directory}, ensure_ascii=False)
        case FetchFailed(sentence):
            return json.dumps({"failed": printable(sentence)}, ensure_ascii=False)


def from_line(line: str) -> Told | None:
    """What a line tells; `None` if it is not one of ours (a library's warning, say)."""
    try:
        match json.loads(line):
            case {"fetching": {"done": done, "total": total, "rate": rate, "note": note}}:
                return FetchProgress(done, total, rate, str(note))
            case {"fetched": str(directory)}:
                return Fetched(directory)
            case {"failed": str(sentence)}:
                return FetchFailed(sentence)
    except ValueError:
        return None
    return None


def size_text(size: float) -> str:
    """Bytes in the unit people use: `28.0 GiB`, `120 MiB`."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    digits = 1 if unit >= 3 else 0
    return f"{size:.{digits}f} {_UNITS[unit]}"
