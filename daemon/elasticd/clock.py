"""The one clock: wall time at start plus monotonic time, so it never jumps back."""

from __future__ import annotations

import time


class Clock:
    """Seconds since the epoch that only grow; `floor` is the last time ever recorded."""

    def __init__(self, floor: float = 0.0) -> None:
        self._offset = max(time.time(), floor) - time.monotonic()

    def now(self) -> float:
        """Seconds."""
        return self._offset + time.monotonic()
