"""Whether two statuses tell of the same fleet: time alone changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOVING = frozenset(
    {
        *("at", "age", "seconds_left", "dead_for", "uptime", "rounds", "usual", "running_for"),
        *("today", "day_ends_in"),
    }
)
"""Figures that move by themselves."""

_COUNTERS = frozenset({"providers", "agent"})
"""Parts that count calls and ages; what they lead to is told elsewhere."""


def essence(status: Mapping[str, Any]) -> Any:
    """What is left of a status without everything that moves by itself; comparable."""
    return _still({key: part for key, part in status.items() if key not in _COUNTERS})


def _still(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _still(part)
            for key, part in value.items()
            if key not in _MOVING and not key.endswith("_age")
        }
    return [_still(part) for part in value] if isinstance(value, list) else value
