"""The notices in a watcher's report: from a machine, so read with suspicion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from elasticd.agent_api.messages import NoticeReport

MOST = 20
"""Notices that one machine may tell; its cloud knows of three kinds."""
LONGEST_TEXT = 300


def read_notices(told: object) -> tuple[NoticeReport, ...]:
    """Raises `ValueError` for all of them if one cannot be read: left out, it would seem over."""
    if not isinstance(told, tuple) or len(told) > MOST:
        raise ValueError(f"`notices` is not a list of at most {MOST}")
    return tuple(_read(notice) for notice in told)


def aged(notices: tuple[NoticeReport, ...], age: float) -> tuple[NoticeReport, ...]:
    """What was told `age` seconds ago, as it is now."""
    return tuple(
        n if n.seconds_left is None else replace(n, seconds_left=max(0.0, n.seconds_left - age))
        for n in notices
    )


def _read(notice: object) -> NoticeReport:
    if not isinstance(notice, Mapping):
        raise ValueError("a notice is not a JSON object")  # noqa: TRY004 - it is data, not a caller
    return NoticeReport(
        _text(notice, "notice_id"), _text(notice, "kind"), _seconds(notice.get("seconds_left"))
    )


def _text(notice: Mapping[str, object], name: str) -> str:
    value = notice.get(name)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_TEXT:
        raise ValueError(f"`{name}` of a notice is not a short text")
    return value


def _seconds(told: object) -> float | None:
    """What is no number is taken as none left: early is cheaper than late."""
    if told is None:
        return None
    try:
        left = float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(left, 0.0) if math.isfinite(left) else 0.0
