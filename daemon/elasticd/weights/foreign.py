"""What strangers send: JSON within bounds, and text that can be shown. Pure.

A hub, a mirror or a proxy may answer anything at all. What comes through here can be walked,
copied, written down again and printed, whatever it was.
"""

from __future__ import annotations

import json
from typing import Any

DEEPEST = 64
"""Levels of lists and mappings. Python walks a thousand, and some of ours take several a level."""

_HOLDERS = (dict, list)

LONGEST_SENTENCE = 400
"""Characters: a supervisor cuts longer lines, and half an object says nothing."""


def read_json(body: bytes) -> Any:
    """The value. Raises `ValueError` for what is no JSON, or nested deeper than `DEEPEST`."""
    try:
        told = json.loads(body)
    except RecursionError:
        raise ValueError("nested without end") from None
    level = [told]
    for _ in range(DEEPEST):
        level = [i for value in level for i in _inside(value) if isinstance(i, _HOLDERS)]
        if not level:
            return told
    raise ValueError(f"nested deeper than {DEEPEST} levels")


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def printable(text: str, limit: int = LONGEST_SENTENCE) -> str:
    """One line: what steers a terminal, or is half a character, becomes a question mark."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
