"""Durations and points in time as people read them."""

from __future__ import annotations

import time


def age(seconds: float | None) -> str:
    """A duration in at most two units: `4s`, `12m`, `3h20m`, `2d4h`; unknown is `?`."""
    if seconds is None:
        return "?"
    left = max(0, round(seconds))
    if left < 60:
        return f"{left}s"
    if left < 3600:
        minutes, rest = divmod(left, 60)
        return f"{minutes}m{rest}s" if minutes < 5 and rest else f"{minutes}m"
    hours, rest = divmod(left, 3600)
    if hours < 24:
        return f"{hours}h{rest // 60}m" if rest >= 60 else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def moment(at: float) -> str:
    """A point in time, seconds since 1970, in local time: `2030-01-31 14:05:09`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
