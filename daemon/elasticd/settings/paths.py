"""Where files lie: paths of the configuration, and the cache."""

from __future__ import annotations

import os
from pathlib import Path


def resolve(text: str, base: Path) -> Path:
    """An absolute path: `~` is the home directory, relative paths count from `base`."""
    return Path(os.path.normpath(base / Path(text).expanduser()))


def demo_model_dir() -> Path:
    """Where the tiny model lies once it has been made, for every configuration of this user."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "elasticd" / "tiny-model-v1"
