"""The figures of a sweep, and what they fall short of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from tests.sweep.boundaries import KINDS
from tests.sweep.points import Point, missing_kinds
from tests.sweep.story import Story

FLOOR = 150
"""Points at which the controller must have died."""


def kinds_hit(stories: Iterable[Story]) -> Counter[str]:
    """How often something died at a boundary of each kind."""
    return Counter(kind for story in stories for _, at in story.deaths for kind in at.kinds)


class Report:
    """Grows with each life."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known = self.chosen = 0
        self._undisturbed: list[Story] = []
        self._played: list[tuple[Point, Story]] = []
        self.seconds = 0.0
        self.interrupted = False

    def begin(self, known: int, chosen: int, undisturbed: Sequence[Story]) -> None:
        """`known` points there are, `chosen` of them are to be played."""
        self._known, self.chosen, self._undisturbed = known, chosen, list(undisturbed)

    def add(self, point: Point, story: Story) -> None:
        self._played.append((point, story))

    @property
    def played(self) -> int:
        return len(self._played)

    @property
    def hit(self) -> int:
        """Points at which the controller died."""
        return sum(bool(story.deaths) for _, story in self._played)

    @property
    def _stories(self) -> list[Story]:
        return [*self._undisturbed, *(story for _, story in self._played)]

    @property
    def shortfalls(self) -> list[str]:
        """Why this is no pass; empty: it is one."""
        told = [
            f"{story.script}, undisturbed: {story.broken}"
            for story in self._undisturbed
            if not story.fine
        ]
        told += [f"{point}: {story.broken}" for point, story in self._played if not story.fine]
        if self.interrupted:
            told.append(f"interrupted after {self.played} of {self.chosen} points")
        if missing := missing_kinds(kinds_hit(self._stories)):
            told.append(f"nothing died at: {', '.join(missing)}")
        if self.hit < FLOOR:
            told.append(f"{self.hit} crash points; {FLOOR} are the least that prove anything")
        return told

    @property
    def summary(self) -> str:
        stories = self._stories
        kinds = len(KINDS) - len(missing_kinds(kinds_hit(stories)))
        twice = sum(len(story.deaths) > 1 for story in stories)
        recovered = [seconds for story in stories for seconds in story.recovered]
        return (
            f"sweep: {self.hit} crash points, {kinds} of {len(KINDS)} kinds, "
            f"{sum(len(s.leaked) for s in stories)} leaks, "
            f"{sum(len(s.launched_twice) for s in stories)} launched twice, "
            f"{sum(len(s.foreign_touched) for s in stories)} foreign touched, "
            f"{sum(not s.fine for s in stories)} lives broken, {twice} with a second crash, "
            f"{self.played - self.hit} points not reached, at rest after "
            f"{median(recovered or [0.0]):.1f} s (median), {max(recovered, default=0.0):.1f} s "
            f"(longest), {self.seconds:.0f} s, seed {self._seed}"
        )

    def to_json(self) -> dict[str, Any]:
        stories = self._stories
        starts = [seconds for story in stories for seconds in story.starts]
        recovered = [seconds for story in stories for seconds in story.recovered]
        hit = kinds_hit(stories)
        return {
            "seed": self._seed,
            "seconds": self.seconds,
            "points_known": self._known,
            "points_chosen": self.chosen,
            "points_played": self.played,
            "interrupted": self.interrupted,
            "crash_points": self.hit,
            "not_reached": [str(point) for point, story in self._played if not story.deaths],
            "deaths": sum(len(story.deaths) for story in stories),
            "second_crashes": sum(len(story.deaths) > 1 for story in stories),
            "kinds": {kind: hit[kind] for kind in (*KINDS, *sorted(set(hit) - set(KINDS)))},
            "kinds_missing": missing_kinds(hit),
            "parts": Counter(part for story in stories for part, _ in story.deaths),
            "leaks": [key for story in stories for key in story.leaked],
            "launched_twice": [key for story in stories for key in story.launched_twice],
            "foreign_touched": [key for story in stories for key in story.foreign_touched],
            "lives": len(stories),
            "lives_broken": sum(not story.fine for story in stories),
            "machines": sum(story.machines for story in stories),
            "calls": _sum(story.calls for story in stories),
            "faults": _sum(story.faults for story in stories),
            "start_median": median(starts or [0.0]),
            "start_longest": max(starts, default=0.0),
            "recovered_median": median(recovered or [0.0]),
            "recovered_longest": max(recovered, default=0.0),
            "life_median": median([story.seconds for story in stories] or [0.0]),
            "life_longest": max((story.seconds for story in stories), default=0.0),
            "shortfalls": self.shortfalls,
            "points": [
                {
                    "point": str(point),
                    "deaths": [[part, list(at.kinds)] for part, at in story.deaths],
                    "seconds": round(story.seconds, 1),
                    "recovered": [round(seconds, 2) for seconds in story.recovered],
                    "fine": story.fine,
                }
                for point, story in self._played
            ],
        }


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))
