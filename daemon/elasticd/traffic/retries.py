"""How often requests may be started again, all together: pure counting, `now` is an argument.

The first retry of a request is always free: the loss of a node breaks all its streams at once, and
that is when each must go on. Every further one draws on a budget, so that requests which fail again
and again do not multiply the load on a fleet that is failing. The budget grows with what is under
way: one more try for each request that runs, in any `SPAN`. Losing a second replica while the
streams of the first go on is covered, however many they are.
"""

from __future__ import annotations

SPAN = 10
"""Seconds over which everything is counted."""

LEAST = 10.0
"""Further retries per second that are always there: a small fleet has few requests to count."""

SHARE = 0.2
"""Further retries per request that came in the span."""


class _Recent:
    """How many there were in the last `SPAN` seconds, counted by the whole second."""

    __slots__ = ("_counts", "_second", "_until")

    def __init__(self) -> None:
        self._counts = [0] * SPAN
        self._second = 0
        self._until = 0.0

    def add(self, now: float) -> None:
        """One more. Called for every request: once a second it does more than count."""
        if now >= self._until:
            self._go_on(now)
        self._counts[self._second] += 1

    def read(self, now: float) -> int:
        """The sum; what is too old has been forgotten."""
        if now >= self._until:
            self._go_on(now)
        return sum(self._counts)

    def _go_on(self, now: float) -> None:
        passed = min(int(now - self._until) + 1, SPAN)
        for _ in range(passed):
            self._second = (self._second + 1) % SPAN
            self._counts[self._second] = 0
        self._until = int(now) + 1.0


class RetryBudget:
    """One for the whole gateway."""

    def __init__(self) -> None:
        self._arrived = _Recent()
        self._retried = _Recent()
        self._under_way = 0

    def begin(self, now: float) -> None:
        """A request has come."""
        self._under_way += 1
        self._arrived.add(now)

    def end(self) -> None:
        """It is over."""
        self._under_way -= 1

    def take(self, now: float) -> bool:
        """Whether one request may be tried a further time; if so, that is counted."""
        most = max(LEAST * SPAN, SHARE * self._arrived.read(now), self._under_way)
        if self._retried.read(now) >= most:
            return False
        self._retried.add(now)
        return True
