"""Where a model comes from, as the configuration names it."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.fit import ModelShape
from elasticd.settings.paths import known_home
from elasticd.weights.source import PREFIX, HubSource
from elasticd.weights.source import parse_source as parse_hub_source

DEMO = "demo:tiny"
_FILE = "file:"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A directory on the node."""

    directory: str


@dataclass(frozen=True, slots=True)
class DemoSource:
    """The tiny model that is made on the spot."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the hub said of a `HubSource`, once: its commit, and the model's shape if it told."""

    commit: str
    shape: ModelShape | None = None


def parse_source(text: str) -> HubSource | FileSource | DemoSource:
    """Raises `ValueError` for a text that names no source."""
    if text == DEMO:
        return DemoSource()
    if text.startswith(_FILE) and text != _FILE:
        return FileSource(known_home(text.removeprefix(_FILE)))
    if text.startswith(PREFIX):
        return parse_hub_source(text)
    raise ValueError(
        f"unknown source {text[:80]!r}; allowed: hf:REPO[@REVISION], file:DIRECTORY, {DEMO}"
    )
