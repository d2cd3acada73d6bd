"""Tells the core when the budget's day begins and ends, which depends on zones and clock changes.

The core's clock never jumps, the host's may: it is set, or stands still while a machine sleeps. A
day follows the host's clock and is told in seconds of the core's. Whatever the clocks do, and when
`day_starts` is moved by a reload, a day that has been told never begins anew: what was spent in it
would be forgotten, and the cap passed. Only its end moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from elasticd.core.events import DayTold
from elasticd.runtime.ports import Clock, Emit
from elasticd.runtime.pulse import Pulse
from elasticd.settings.day_start import DayStart, NoZoneData

_LOOK_EVERY = 60.0
"""Seconds after which a clock that was set is noticed."""

_SAME = 1.0
"""Seconds by which the two clocks, or two ends of one day, may differ and are the same."""

_LONGEST = 50 * 3600.0
"""Seconds after which a day is over, however far the host's clock was set back: a wrong year that
was put right must not be one day."""

_log = structlog.get_logger()


class Days:
    """`wall` is the host's clock, in seconds since 1970."""

    def __init__(
        self,
        day_starts: DayStart,
        clock: Clock,
        emit: Emit,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._starts = day_starts
        self._clock = clock
        self._emit = emit
        self._wall = wall
        self._changed = Pulse()
        self._latest = self._ends = 0.0
        self._looked_at = 0.0
        self._told: DayTold | None = None
        self._zone_missing = ""

    def set(self, day_starts: DayStart) -> None:
        """What a reload says."""
        if day_starts != self._starts:
            self._starts = day_starts
            self._changed.poke()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            left = self._look()
            await self._changed.rest(min(max(left, 0.01), _LOOK_EVERY))

    def _look(self) -> float:
        """Tells what has changed; returns how long the day goes on, in seconds."""
        wall, now = self._wall(), self._clock.now()
        # Equal but for the time between two calls: then a day's begin is the same in every life.
        shift = now - wall if abs(now - wall) >= _SAME else 0.0
        began, ends = self._day_of(wall)
        told, before = DayTold(began + shift, ends + shift), self._told
        if before is not None and self._goes_on(before, began, now):
            told = DayTold(before.began, told.ends)
        elif before is not None:
            # In the core's time it begins no earlier than we last saw the day before it.
            follows = abs(told.began - before.ends) < _SAME
            first = before.ends if follows else max(told.began, self._looked_at)
            told = DayTold(first, told.ends)
        if before is None or told.began != before.began or abs(told.ends - before.ends) >= _SAME:
            self._emit(told)
            self._told = told
        self._latest, self._ends, self._looked_at = max(began, self._latest), ends, now
        return ends - wall

    def _goes_on(self, before: DayTold, began: float, now: float) -> bool:
        """Whether the host's day that began at `began` is still the one that was told."""
        known = began < self._ends or began <= self._latest
        return known and now - before.began < _LONGEST

    def _day_of(self, wall: float) -> tuple[float, float]:
        try:
            day = self._starts.day_of(wall)
        except NoZoneData as missing:
            if self._zone_missing != self._starts.zone:
                self._zone_missing = self._starts.zone
                _log.warning(
                    "no_time_zone_data", problem=str(missing), effect="the day follows UTC"
                )
            return DayStart(self._starts.minute).day_of(wall)
        self._zone_missing = ""
        return day
