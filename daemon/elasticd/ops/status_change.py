"""Whether two statuses tell of the same fleet: time alone changes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DURATION = re.compile(r"\b\d+(?:\.\d+)?(?:ms| ?s|m|h|d)(?:\d+[smh])?\b")

_MOVING = frozenset(
    {
        *(
            "at",
            "age",
            "seconds_left",
            "dead_for",
            "closed_for",
            "uptime",
            "rounds",
            "usual",
            "running_for",
        ),
        *("today", "day_ends_in"),
    }
)
"""Figures that move by themselves."""

_COUNTERS = frozenset({"providers", "agent"})
"""Parts that count calls and ages; what they lead to is told elsewhere."""


def essence(status: Mapping[str, Any]) -> Any:
    """What is left of a status without everything that moves by itself; comparable."""
    return _still({key: part for key, part in status.items() if key not in _COUNTERS})


def still(text: str) -> str:
    """A text without its ages and durations, and without the padding that they need."""
    return " ".join(_DURATION.sub("…", text).split())


def _still(value: Any) -> Any:
    if isinstance(value, str):
        return still(value)
    if isinstance(value, dict):
        return {
            key: _still(part)
            for key, part in value.items()
            if key not in _MOVING and not key.endswith("_age")
        }
    return [_still(part) for part in value] if isinstance(value, list) else value
