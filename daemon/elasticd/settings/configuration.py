"""A configuration that can be used, with what depends on where its file lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.provider import ProviderPlugin
from elasticd.settings.document import Problem
from elasticd.settings.model import Model, Settings
from elasticd.settings.paths import demo_model_dir, resolve
from elasticd.settings.sources import DemoSource, FileSource, parse_source


@dataclass(frozen=True, slots=True)
class Configuration:
    """Checked settings. `plugins` and `options` are by pool name; `path` is absolute.

    `warnings` are choices that hold and hurt later. Relative paths count from the file's directory.
    """

    path: Path
    settings: Settings
    plugins: Mapping[str, ProviderPlugin]
    options: Mapping[str, Any]
    warnings: tuple[Problem, ...] = ()

    @property
    def state_dir(self) -> Path:
        """Everything elasticd keeps."""
        return resolve(self.settings.state_dir, self.path.parent)

    @property
    def admin_socket(self) -> Path:
        """Where commands reach the controller."""
        given = self.settings.admin.socket
        return resolve(given, self.path.parent) if given else self.state_dir / "run" / "admin.sock"

    @property
    def weights_dir(self) -> Path | None:
        """Where weights from a hub lie on a node; `None`: the node decides."""
        given = self.settings.weights.dir
        return resolve(given, self.path.parent) if given else None

    def model_source(self, model: Model) -> str:
        """What the engine is given as its model: a directory, or a hub's repository to fetch."""
        return source_directory(model.source, self.path.parent)


def source_directory(text: str, base: Path) -> str:
    """A source with its directory made absolute; a hub's is returned with its revision."""
    match source := parse_source(text):
        case DemoSource():
            return str(demo_model_dir())
        case FileSource():
            return str(resolve(source.directory, base))
        case hub:
            return str(hub)
