"""Where a daemon is, read from its configuration in a few milliseconds.

A command that only asks a running daemon needs two keys of the file. Checking all of it takes
longer than the daemon's answer, and a problem elsewhere in it must not keep people from seeing
what runs. Whatever is not plain here is left to the whole check.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.settings.document import read_document
from elasticd.settings.paths import known_home, resolve


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Of the daemon of one configuration. `problem`: why that configuration could not tell."""

    socket: Path
    state_dir: Path
    problem: str = ""


def whereabouts(path: Path) -> Whereabouts | None:
    """`None`: the whole check must say. Raises `UsageError` for a file that cannot be read."""
    path = path.absolute()
    document = read_document(path)
    data = document.data
    if document.problems or not isinstance(data, dict):
        return None
    admin = data.get("admin", {})
    state_dir = _path(data.get("state_dir"), path.parent)
    if state_dir is None or not isinstance(admin, dict):
        return None
    if admin.get("socket") is None:
        return Whereabouts(state_dir / "run" / "admin.sock", state_dir)
    socket = _path(admin["socket"], path.parent)
    return None if socket is None else Whereabouts(socket, state_dir)


def _path(text: Any, base: Path) -> Path | None:
    if not isinstance(text, str):
        return None
    try:
        return resolve(known_home(text), base)
    except ValueError:
        return None
