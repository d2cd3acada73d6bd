"""What hubs said of our sources, once and for all: `sources.json` in the state directory.

While an entry is there it holds, whatever the hub says later: a revision that moved on must not
change a running fleet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from elasticd.weights.foreign import read_json
from elasticd.weights.source import is_commit

VERSION = 1
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Entry:
    """One source: its commit, the bytes of its weights, its `config.json` (`None`: it has none).

    `complete`: the configuration has been asked for, too.
    """

    commit: str
    weight_bytes: int | None = None
    config: Mapping[str, Any] | None = None
    complete: bool = False


class SourceFile:
    """Holds the entries by the source's text; every change is on the disk when it returns."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "sources.json"
        self._entries = self._read()

    def get(self, source: str) -> Entry | None:
        """What is known of a source."""
        return self._entries.get(source)

    def put(self, source: str, entry: Entry) -> None:
        """Remembers it. A disk that takes nothing is warned of: a restart would ask again."""
        self._entries[source] = entry
        self._write()

    def keep(self, sources: Iterable[str]) -> None:
        """Forgets all others: somebody who names one of them anew wants to know it anew."""
        wanted = set(sources)
        if self._entries.keys() - wanted:
            self._entries = {s: e for s, e in self._entries.items() if s in wanted}
            self._write()

    def _read(self) -> dict[str, Entry]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as problem:
            return self._damaged(str(problem))
        try:
            told = read_json(text.encode())
            if told["version"] != VERSION:
                return self._damaged(f"version {told['version']}, known is {VERSION}")
            return {str(s): _entry(e) for s, e in told["sources"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            return self._damaged(repr(problem))

    def _damaged(self, problem: str) -> dict[str, Entry]:
        _log.warning(
            "sources_not_read",
            path=str(self._path),
            problem=problem,
            effect="the hub is asked again; a revision that moved on since changes its model",
        )
        return {}

    def _write(self) -> None:
        entries = {source: asdict(entry) for source, entry in self._entries.items()}
        told = {"version": VERSION, "sources": entries}
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                json.dump(told, out)
                out.flush()
                os.fsync(out.fileno())
            draft.replace(self._path)
        except OSError as problem:
            _log.warning(
                "sources_not_written",
                problem=str(problem),
                effect="after a restart the hub is asked again",
            )


def _entry(told: Mapping[str, Any]) -> Entry:
    entry = Entry(**told)
    sound = (
        isinstance(entry.commit, str)
        and is_commit(entry.commit)
        and isinstance(entry.weight_bytes, int | None)
        and isinstance(entry.config, dict | None)
    )
    if not sound:
        raise ValueError("an entry that none of ours wrote")
    return entry
