"""What became of requests whose replica went or failed: counts for status, drills and metrics.

A request that leaves a replica is settled only when it is known what came of it: `continued` or
`restarted` when another replica has answered, `lost` when its client was told of an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

_REMEMBERED = 500
"""Replicas whose counts are kept; the oldest go first."""


@dataclass(slots=True)
class Moved:
    """Requests of one replica, since the gateway has known it."""

    finished: int = 0
    continued: int = 0
    restarted: int = 0
    lost: int = 0


@dataclass(slots=True)
class Totals(Moved):
    """Requests of one model, since the gateway began. `answered`: all that got their answer."""

    answered: int = 0


class Outcomes:
    """Counts by replica and by model."""

    def __init__(self) -> None:
        self._moved: dict[str, Moved] = {}
        self._told: dict[str, Moved] = {}
        self._totals: dict[str, Totals] = {}
        self._epoch = 0

    def answered(self, model: str) -> None:
        """A request has its answer."""
        self._of(model).answered += 1

    def finished(self, model: str, replica_id: str) -> None:
        """A request was finished on a replica that is to go."""
        self._replica(replica_id).finished += 1
        self._of(model).finished += 1

    def went_on(self, model: str, left: Iterable[str], *, begun: bool) -> None:
        """Another replica answers in the place of those. `begun`: with the rest of a stream."""
        for key in left:
            for counts in (self._replica(key), self._of(model)):
                if begun:
                    counts.continued += 1
                else:
                    counts.restarted += 1

    def lost(self, model: str, left: Iterable[str]) -> None:
        """The client was told that there is no answer, because of these: one request is lost."""
        keys = list(left)
        if keys:
            self._replica(keys[-1]).lost += 1
            self._of(model).lost += 1

    def totals(self) -> list[dict[str, str | int]]:
        """By model, for the report."""
        return [
            {"model": model, **{f.name: getattr(counts, f.name) for f in fields(counts)}}
            for model, counts in sorted(self._totals.items())
        ]

    def news(self, epoch: int) -> dict[str, Moved]:
        """Counts that this life of the controller has not been told."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._told.clear()
        return {
            key: replace(counts)
            for key, counts in self._moved.items()
            if self._told.get(key) != counts
        }

    def told(self, news: dict[str, Moved]) -> None:
        """They have arrived."""
        self._told |= news

    def _replica(self, replica_id: str) -> Moved:
        counts = self._moved.get(replica_id)
        if counts is None:
            counts = self._moved[replica_id] = Moved()
            if len(self._moved) > _REMEMBERED:
                oldest = next(iter(self._moved))
                del self._moved[oldest]
                self._told.pop(oldest, None)
        return counts

    def _of(self, model: str) -> Totals:
        counts = self._totals.get(model)
        if counts is None:
            counts = self._totals[model] = Totals()
        return counts
