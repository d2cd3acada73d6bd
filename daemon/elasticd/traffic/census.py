"""Demand of each model as plain counts, for the controller's scaling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelCount:
    """`queued` and `in_flight` are of now, `peak` (of their sum) and `arrivals` of a period."""

    model: str
    queued: int
    in_flight: int
    peak: int
    arrivals: int


@dataclass(slots=True)
class _Tally:
    queued: int = 0
    in_flight: int = 0
    peak: int = 0
    arrivals: int = 0


class Census:
    """Counts until told that the counts have arrived: a report that is lost loses no demand."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def admitted(self, model: str) -> None:
        """One new request that has a lease at once, nearly every one."""
        tally = self._of(model)
        tally.arrivals += 1
        tally.in_flight += 1
        if tally.queued + tally.in_flight > tally.peak:
            tally.peak = tally.queued + tally.in_flight

    def arrived(self, model: str) -> None:
        """One new request, without a lease as yet."""
        self._of(model).arrivals += 1

    def running(self, model: str, change: int) -> None:
        """Requests with a lease became more or fewer."""
        self._of(model).in_flight += change

    def waiting(self, model: str, queued: int) -> None:
        """So many tickets wait now. Called last after a change, so the sum is true."""
        tally = self._of(model)
        tally.queued = queued
        tally.peak = max(tally.peak, tally.queued + tally.in_flight)

    def read(self, models: Iterable[str]) -> tuple[ModelCount, ...]:
        """The counts of these models, and of any other that still has requests."""
        busy = {m for m, t in self._tallies.items() if t.queued or t.in_flight or t.arrivals}
        return tuple(
            ModelCount(
                model, t.queued, t.in_flight, max(t.peak, t.queued + t.in_flight), t.arrivals
            )
            for model in sorted({*models} | busy)
            for t in (self._tallies.get(model) or _Tally(),)
        )

    def taken(self, counts: Iterable[ModelCount]) -> None:
        """Starts a new period after these counts; what came since they were read is kept."""
        for count in counts:
            tally = self._tallies.get(count.model)
            if tally is not None:
                tally.arrivals -= count.arrivals
                tally.peak = tally.queued + tally.in_flight

    def _of(self, model: str) -> _Tally:
        tally = self._tallies.get(model)
        if tally is None:
            tally = self._tallies[model] = _Tally()
        return tally
