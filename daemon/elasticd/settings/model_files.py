"""The shape of a model that lies in a directory of this host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticd.core.fit import ModelShape, read_shape

# Of a checkpoint that is there in several forms the engine loads one: the first of these.
_FORMS = ("model*.safetensors", "*.safetensors", "pytorch_model*.bin", "*.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def read_model(directory: Path) -> ModelShape:
    """The model's shape, with the size of its weight files where they lie beside it.

    Raises `ValueError` with a sentence when it cannot be told.
    """
    config = _json(directory / "config.json")
    try:
        return read_shape(config, weight_bytes(directory))
    except ValueError as bad:
        raise ValueError(f"{directory}: {bad}") from bad


def weight_bytes(directory: Path) -> int | None:
    """How large the weights are on disk, in bytes; `None` without any."""
    for name in _INDEXES:
        if (directory / name).is_file():
            metadata = _json(directory / name).get("metadata")
            total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
            if isinstance(total, int) and total > 0:
                return total
    for form in _FORMS:
        size = sum(file.stat().st_size for file in directory.glob(form) if file.is_file())
        if size:
            return size
    return None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"there is no {path}") from None
    except (OSError, ValueError, RecursionError) as bad:
        raise ValueError(f"{path} cannot be read: {bad}") from bad
    if isinstance(told, dict):
        return told
    raise ValueError(f"{path} holds no mapping of names to values")
