"""The budget's day: told at each change, through changes of the clocks, and never begun twice."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.events import DayTold, Event
from elasticd.runtime.days import Days
from elasticd.settings.day_start import DayStart, parse_day_start
from tests.runtime.virtual import LoopClock, settle, virtual

DAY, HOUR = 86_400.0, 3600.0


def moment(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


NOON = moment("2030-03-10T12:00:00+00:00")
MIDNIGHT = moment("2030-03-10T00:00:00+00:00")


class Host:
    """Both clocks and what was told; `step` sets the host's clock."""

    def __init__(self, at: float = NOON, starts: str = "00:00 UTC", floor: float = 0.0) -> None:
        self._at = at
        self.told: list[DayTold] = []
        clock = LoopClock(at + floor)
        self.days = Days(parse_day_start(starts), clock, self._emit, self.wall)

    def wall(self) -> float:
        return self._at + asyncio.get_running_loop().time()

    def step(self, seconds: float) -> None:
        self._at += seconds

    def _emit(self, event: Event) -> None:
        assert isinstance(event, DayTold)
        self.told.append(event)

    @contextmanager
    def running(self) -> Iterator[None]:
        task = asyncio.ensure_future(self.days.run())
        try:
            yield
        finally:
            task.cancel()


@virtual
async def test_the_day_is_told_at_once_and_at_each_midnight() -> None:
    host = Host()
    with host.running():
        await settle()
        assert host.told == [DayTold(MIDNIGHT, MIDNIGHT + DAY)]
        await asyncio.sleep(2 * DAY)
    days = [MIDNIGHT + n * DAY for n in range(4)]
    assert host.told == [DayTold(*days[n : n + 2]) for n in range(3)]


@pytest.mark.parametrize(
    ("at", "zone", "hours"),
    [
        ("2030-03-31T12:00:00+02:00", "Europe/Berlin", 23),
        ("2030-10-27T12:00:00+01:00", "Europe/Berlin", 25),
        ("2030-03-10T12:00:00-04:00", "America/New_York", 23),
        ("2030-06-01T12:00:00+08:00", "Asia/Shanghai", 24),
    ],
)
def test_a_day_in_which_the_clocks_change_has_23_or_25_hours(
    at: str, zone: str, hours: int
) -> None:
    began, ends = DayStart(0, zone).day_of(moment(at))
    assert (ends - began) / HOUR == hours
    assert began == moment(f"{at[:10]}T00:00:00") or began <= moment(at) < ends


def test_a_midnight_that_does_not_exist_begins_a_day_all_the_same() -> None:
    # In Beirut the clocks went from 24:00 to 01:00.
    began, ends = DayStart(0, "Asia/Beirut").day_of(moment("2022-03-27T12:00:00+03:00"))
    assert began == moment("2022-03-27T00:00:00+02:00")
    assert (ends - began) / HOUR == 23


def test_a_date_that_a_zone_skipped_is_no_empty_day() -> None:
    began, ends = DayStart(0, "Pacific/Apia").day_of(moment("2011-12-31T00:00:00+14:00"))
    assert (began, ends) == (
        moment("2011-12-31T00:00:00+14:00"),
        moment("2012-01-01T00:00:00+14:00"),
    )


@given(
    at=st.floats(moment("1975-01-01"), moment("2037-01-01")),
    minute=st.integers(0, 1439),
    zone=st.sampled_from(
        ["UTC", "Asia/Shanghai", "Europe/Berlin", "Pacific/Apia", "Asia/Beirut", "Australia/Sydney"]
    ),
)
def test_days_hold_their_moment_and_follow_each_other_without_a_gap(
    at: float, minute: int, zone: str
) -> None:
    starts = DayStart(minute, zone)
    began, ends = starts.day_of(at)
    assert began <= at < ends
    assert 22 * HOUR <= ends - began <= 26 * HOUR
    assert starts.day_of(ends)[0] == ends
    assert starts.day_of(ends - 0.5) == (began, ends)


@virtual
async def test_a_clock_set_back_over_midnight_begins_no_day_twice() -> None:
    host = Host(MIDNIGHT + 10)
    with host.running():
        await settle()
        host.step(-100.0)  # it is yesterday again, and after a while today
        await asyncio.sleep(DAY + 200)
    *same, new = host.told
    assert {told.began for told in same} == {MIDNIGHT}
    assert new == DayTold(MIDNIGHT + DAY + 100, MIDNIGHT + 2 * DAY + 100)


@virtual
async def test_a_year_that_was_wrong_and_is_put_right_is_not_one_day() -> None:
    host = Host()
    with host.running():
        await settle()
        host.step(-365 * DAY)
        await asyncio.sleep(3 * DAY)
    begins = sorted({told.began for told in host.told})
    assert 1 < len(begins) <= 3
    assert all(later - earlier > DAY for earlier, later in itertools.pairwise(begins))


@virtual
async def test_a_clock_set_forward_ends_the_day_when_the_host_says_so() -> None:
    host = Host()
    with host.running():
        await settle()
        host.step(6 * HOUR)
        await asyncio.sleep(6 * HOUR + 1)
    began, moved, new = host.told
    assert (moved.began, moved.ends) == (began.began, MIDNIGHT + DAY - 6 * HOUR)
    assert new.began == moved.ends
    assert new.ends == new.began + DAY


@virtual
async def test_a_clock_set_forward_over_a_whole_day_begins_the_new_one_after_the_old() -> None:
    host = Host()
    with host.running():
        await asyncio.sleep(90)
        host.step(30 * HOUR)
        await asyncio.sleep(90)
    old, new = host.told
    assert old.began < NOON < new.began <= NOON + 180
    assert new.ends == pytest.approx(NOON + 6 * HOUR)


@virtual
async def test_a_core_whose_clock_is_ahead_is_told_in_its_own_time() -> None:
    host = Host(floor=2 * HOUR)
    with host.running():
        await asyncio.sleep(13 * HOUR)
    first, second = host.told
    assert (first.began, first.ends) == (MIDNIGHT + 2 * HOUR, MIDNIGHT + DAY + 2 * HOUR)
    assert second.began == first.ends


@virtual
async def test_the_same_day_is_told_alike_in_every_life() -> None:
    lives = []
    for jitter in (0.0, 0.003, -0.4):
        host = Host(floor=jitter)
        with host.running():
            await settle()
        lives += host.told
    assert len(set(lives)) == 1


@virtual
async def test_a_reload_that_moves_the_start_of_the_day_forgets_nothing_that_was_spent() -> None:
    host = Host()
    with host.running():
        await settle()
        host.days.set(parse_day_start("06:00 UTC"))
        await settle()
        assert host.told[1] == DayTold(MIDNIGHT, MIDNIGHT + DAY + 6 * HOUR)
        host.days.set(parse_day_start("06:00 UTC"))
        await asyncio.sleep(18 * HOUR + 1)
    assert host.told[2] == DayTold(MIDNIGHT + 30 * HOUR, MIDNIGHT + 54 * HOUR)
    assert len(host.told) == 3


@virtual
async def test_a_zone_without_data_is_warned_of_once_and_the_day_follows_utc(
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = Host()
    host.days.set(DayStart(0, "Nowhere/Land"))
    with host.running():
        await asyncio.sleep(2 * HOUR)
    assert host.told == [DayTold(MIDNIGHT, MIDNIGHT + DAY)]
    assert capsys.readouterr().out.count("no_time_zone_data") == 1
