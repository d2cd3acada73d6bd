"""Where files lie: paths of the configuration, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

from elasticd.errors import UsageError


def known_home(text: str) -> str:
    """The text itself. Raises `ValueError` when it is empty or `~` stands for nobody's home."""
    if not text.strip():
        raise ValueError("must be a path, not empty")
    try:
        Path(text).expanduser()
    except RuntimeError:
        user = text.split("/", 1)[0]
        raise ValueError(f"{text!r}: no home directory is known for {user}") from None
    return text


def resolve(text: str, base: Path) -> Path:
    """An absolute path: `~` is the home directory, relative paths count from `base`.

    The text has been checked by `known_home`.
    """
    return Path(os.path.normpath(base / Path(text).expanduser()))


def demo_model_dir() -> Path:
    """Where the tiny model lies once it has been made, for every configuration of this user."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(known_home(cache)).expanduser() / "elasticd" / "tiny-model-v1"
    except ValueError as bad:
        raise UsageError(f"the cache for the tiny model: {bad}; set XDG_CACHE_HOME") from None
