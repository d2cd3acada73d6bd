"""Which points a sweep kills at: all that an undisturbed life crosses, or a sample with every kind.

A list that follows the same list with nothing in between finds the same ledger and the same cloud:
it is the same point, and counts once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.sweep.boundaries import KINDS, Crossing, Death

_POLLS = ("instances:", "offerings:")

SECOND_SHARE = 0.25
"""Of so many points the controller is killed once more while it recovers."""

SECOND_WITHIN = 25
"""Boundaries of a recovering controller of which one is the second death."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where the controller dies first: the `nth` time that it crosses `kind`. `second`: which
    boundary of its next life is its end, too; 0: none."""

    script: str
    kind: str
    nth: int
    second: int = 0

    def __str__(self) -> str:
        again = f", then at boundary {self.second}" if self.second else ""
        return f"{self.script}: {self.kind} #{self.nth}{again}"

    @property
    def deaths(self) -> tuple[Death, ...]:
        first = Death({self.kind: self.nth})
        return (first, Death(number=self.second)) if self.second else (first,)


def points_of(script: str, crossed: Sequence[Crossing]) -> list[Point]:
    """Each different boundary once, in the order in which they were crossed.

    One of several kinds goes by its rarest: that is the surest to be crossed again.
    """
    total = Counter(kind for crossing in crossed for kind in crossing.kinds)
    found: list[Point] = []
    moves = 0
    polled: dict[str, int] = {}
    for crossing in crossed:
        kind = min(crossing.kinds, key=lambda k: (total[k], k))
        if kind.startswith(_POLLS):
            if polled.get(kind) == moves:
                continue
            polled[kind] = moves
        else:
            moves += 1
        found.append(Point(script, kind, crossing.kinds[kind]))
    return found


def sample(points: Sequence[Point], count: int | None, dice: random.Random) -> list[Point]:
    """So many points in any order, every kind among them; `None`: all of them."""
    shuffled = dice.sample(points, len(points))
    if count is not None:
        first = {point.kind: point for point in reversed(shuffled)}
        others = [point for point in shuffled if first[point.kind] is not point]
        shuffled = [*first.values(), *others][: max(count, len(first))]
        dice.shuffle(shuffled)
    return [_with_second(point, dice) for point in shuffled]


def _with_second(point: Point, dice: random.Random) -> Point:
    if dice.random() >= SECOND_SHARE:
        return point
    return Point(point.script, point.kind, point.nth, dice.randint(1, SECOND_WITHIN))


def missing_kinds(hit: Mapping[str, int]) -> list[str]:
    """Kinds at which nothing died."""
    return [kind for kind in KINDS if not hit.get(kind)]
