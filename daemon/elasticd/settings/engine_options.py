"""Options of vLLM that elasticd understands: sizes in bytes, and how many GPUs an engine takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elasticd.units import parse_size

# Set by elasticd for every replica; a second value would reach another process than the one asked.
_OURS = {
    "model": "the model's `source`",
    "served-model-name": "the model's `name`",
    "host": "the node's own address",
    "port": "a free port of the node",
    "api-key": "a key of elasticd's own",
    "middleware": "the guard that checks that key",
}
_HUB_ACCESS = "hf-token"
_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
SHORT = {"tp": _PARALLEL[0], "pp": _PARALLEL[1], "dp": _PARALLEL[2]}


def option_problem(name: str, value: Any) -> str:
    """Why an option cannot stand in `engine_args`; empty if it can, as far as is known here."""
    if name in _OURS:
        return f"is set by elasticd ({_OURS[name]}); remove it"
    if name == _HUB_ACCESS:
        return "would be shown and kept; use weights.token, which reaches the fetcher alone"
    try:
        as_text(name, value)
    except ValueError as bad:
        return str(bad)
    return ""


def gpus_of(options: Mapping[str, Any]) -> tuple[int, str] | None:
    """How many GPUs the options make an engine take, and their text; `None`: they do not say."""
    said = {SHORT.get(name, name): value for name, value in options.items()}
    sizes = {name: said[name] for name in _PARALLEL if name in said}
    if not sizes or not all(isinstance(size, int) and size >= 1 for size in sizes.values()):
        return None
    count = 1
    for size in sizes.values():
        count *= size
    return count, ", ".join(f"{name}: {size}" for name, size in sizes.items())


def as_text(name: str, value: Any) -> str:
    """An option as an engine gets it: `true` and `false` are flags, lists and mappings are JSON.

    Sizes of options in bytes become bytes. Raises `ValueError` for one that is no size.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, str) and name.endswith("-bytes"):
        return str(parse_size(value))
    return str(value)
