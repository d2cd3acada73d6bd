"""How the control loop is: what `/healthz` answers from."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

from elasticd.runtime.ports import Clock

LONGEST_ROUND = 30.0
"""Seconds; a round that takes longer hangs (a disk that does not answer, most likely)."""


_ROUNDS = 256
"""The latest rounds, of which it is told how long they took."""


class LoopHealth:
    """Written by the loop, read by the admin API. `ledger_error`: why nothing can be written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy_since: float | None = None
        self._fault = ""
        self._took: deque[float] = deque(maxlen=_ROUNDS)
        self.rounds = 0
        self.ledger_error = ""

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Around one round."""
        self._busy_since = began = self._clock.now()
        yield
        self._busy_since = None
        self._took.append(self._clock.now() - began)
        self.rounds += 1

    def fail(self, fault: Exception) -> None:
        """The loop is dead, for good."""
        self._fault = repr(fault)

    @property
    def fault(self) -> str:
        """What the loop died of; empty while it lives."""
        return self._fault

    @property
    def problem(self) -> str:
        """What is wrong with the loop itself; empty while it is alive."""
        if self._fault:
            return f"stopped by a fault: {self._fault}"
        if self._busy_since is not None:
            busy = self._clock.now() - self._busy_since
            if busy > LONGEST_ROUND:
                return f"one round has been under way for {busy:.0f} s"
        return ""

    def summary(self) -> dict[str, Any]:
        """JSON-able. `round_median` and `round_longest` in seconds, of the latest rounds."""
        return {
            "rounds": self.rounds,
            "round_median": median(self._took) if self._took else None,
            "round_longest": max(self._took, default=None),
            "problem": self.problem,
            "ledger_error": self.ledger_error,
        }
