"""The site's state on disk: what is, replaced as a whole, and the calls, one line after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Store:
    """`path`, and `path.calls` beside it.

    Both survive SIGKILL of the process, not a power cut: nothing is flushed to the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls = path.with_name(path.name + ".calls")

    def read(self) -> dict[str, Any] | None:
        """What was saved last; `None` at the first start."""
        try:
            document: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return document

    def save(self, document: dict[str, Any]) -> None:
        """A kill leaves the old or the new."""
        draft = self._path.with_name(self._path.name + ".new")
        draft.write_text(json.dumps(document), encoding="utf-8")
        draft.replace(self._path)

    def calls(self) -> Iterator[dict[str, Any]]:
        """All the lines that were ever appended; one that a kill cut short is left out."""
        if not self._calls.exists():
            return
        for line in self._calls.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def append_calls(self, lines: list[dict[str, Any]]) -> None:
        """Each begins with a line break, so that none is joined to one that was cut short."""
        with self._calls.open("a", encoding="utf-8") as file:
            file.write("".join(f"\n{json.dumps(line)}" for line in lines))
