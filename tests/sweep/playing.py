"""Lives side by side, each in a directory of its own that goes when all was well."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.sweep.boundaries import KINDS, Death
from tests.sweep.life import Life, NextDeath, NotSetUp
from tests.sweep.nursery import Nursery
from tests.sweep.points import Point
from tests.sweep.scripts import SCRIPTS, WHOLE_LIFE
from tests.sweep.story import Story

_TRIES = 3
"""To set a life up, on a machine that is so busy that processes do not start in half a minute."""


class Stage:
    """Where lives are played. The directory of one that broke a promise is kept."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery

    async def undisturbed(self, script: str) -> Story:
        """A life in which nothing dies."""
        return await self._play(script, lambda _: Death())

    async def killed_at(self, point: Point) -> Story:
        """A life with the deaths of a point."""
        deaths: Iterator[Death] = iter(point.deaths)
        return await self._play(point.script, lambda _: next(deaths, Death()))

    async def killed_at_each(self, kinds: Iterable[str]) -> Story:
        """One life with many deaths: at the first boundary of each kind that is not hit yet."""
        wanted = set(kinds)

        def next_death(story: Story) -> Death:
            hit = {kind for _, crossing in story.deaths for kind in crossing.kinds}
            return Death(dict.fromkeys(wanted - hit, 1))

        return await self._play(WHOLE_LIFE, next_death)

    async def side_by_side(
        self, points: Sequence[Point], at_once: int, tell: Callable[[Point, Story], None]
    ) -> None:
        """All points, so many at a time; `tell` hears of each as it is over."""
        waiting = iter(points)

        async def play_on() -> None:
            for point in waiting:
                tell(point, await self.killed_at(point))

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(play_on())

    async def _play(self, script: str, next_death: NextDeath) -> Story:
        for _ in range(_TRIES - 1):
            try:
                return await self._attempt(script, next_death)
            except NotSetUp:
                continue
        return await self._attempt(script, next_death)

    async def _attempt(self, script: str, next_death: NextDeath) -> Story:
        folder = Path(tempfile.mkdtemp(prefix="sweep-"))
        life, broken = Life(self._nursery, folder, script, next_death), False
        try:
            story = await life.play(SCRIPTS[script])
            broken = not story.fine
        finally:
            if not broken:
                shutil.rmtree(folder)
        if broken:
            story.problems.append(f"see {folder}")
        return story


def shares(lives: int) -> list[tuple[str, ...]]:
    """All kinds, dealt out to so many lives: played, they hit every kind together."""
    return [KINDS[number::lives] for number in range(lives)]
