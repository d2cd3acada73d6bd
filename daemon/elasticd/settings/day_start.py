"""When the budget's day begins: a clock time in a time zone, written `00:00 Asia/Shanghai`.

A day lasts until the same clock time comes again: 23 or 25 hours where the clocks change, and in
zones that once skipped a date no day is empty. UTC needs no time zone data, every other zone does.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from elasticd.nearest import nearest

_FORM = re.compile(r"(\S+)(?:\s+(\S+))?")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_WRITTEN: Final = 'for example "00:00 Asia/Shanghai" or "06:30 UTC"'
_OFTEN_MEANT: Final = {
    "beijing": "Asia/Shanghai",
    "asia/beijing": "Asia/Shanghai",
    "china": "Asia/Shanghai",
    "cst": "Asia/Shanghai",
    "shanghai": "Asia/Shanghai",
    "pst": "America/Los_Angeles",
}
"""Names that people use and the time zone data does not have."""


class NoZoneData(Exception):
    """This host cannot say when it is what time in a zone."""


@dataclass(frozen=True, slots=True)
class DayStart:
    """`minute` counts from midnight on the zone's clocks."""

    minute: int = 0
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.minute // 60:02d}:{self.minute % 60:02d} {self.zone}"

    def day_of(self, at: float) -> tuple[float, float]:
        """Begin and end of the day that `at` is in, all in seconds since 1970.

        Raises `NoZoneData`.
        """
        zone = _zone(self.zone)
        today = dt.datetime.fromtimestamp(at, zone).date()
        starts = [self._start(today + dt.timedelta(days=n), zone) for n in range(-2, 3)]
        return max(s for s in starts if s <= at), min(s for s in starts if s > at)

    def _start(self, date: dt.date, zone: dt.tzinfo) -> float:
        """A clock time that does not exist on this date is the moment at which it would have come,
        one that comes twice is the first."""
        clock = dt.time(self.minute // 60, self.minute % 60)
        return dt.datetime.combine(date, clock, zone).timestamp()


def parse_day_start(value: Any) -> DayStart:
    """`"00:00 Asia/Shanghai"`. Raises `ValueError`."""
    if isinstance(value, DayStart):
        return value
    if value is None:
        raise ValueError(f"has no value, where the start of a day belongs; write {_WRITTEN}")
    text = value if isinstance(value, str) else str(value)
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise ValueError(f"not the start of a day: {text[:60]!r}; write {_WRITTEN}")
    wrong = [told for told in (_wrong_clock(found[1]), _wrong_zone(found[2])) if told]
    if wrong:
        raise ValueError("; and ".join(wrong))
    return DayStart(int(found[1][:2]) * 60 + int(found[1][3:]), found[2])


def _wrong_clock(text: str) -> str:
    if _CLOCK.fullmatch(text):
        return ""
    return f"no such clock time: {text[:20]!r}; allowed: 00:00 to 23:59, {_WRITTEN}"


def _wrong_zone(name: str | None) -> str:
    if name is None:
        return f"a time needs its zone; write {_WRITTEN}"
    try:
        _zone(name)
    except NoZoneData as missing:
        known = zoneinfo.available_timezones()
        if not known:
            return str(missing)
        meant = _OFTEN_MEANT.get(name.casefold()) or nearest(name, known)
        hint = f"did you mean {meant}? " if meant else ""
        return (
            f"unknown time zone {name[:60]!r}; {hint}allowed: names of the IANA data, such as "
            "Asia/Shanghai, Europe/Berlin, UTC"
        )
    return ""


def _zone(name: str) -> dt.tzinfo:
    if name == "UTC":
        return dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as missing:
        raise NoZoneData(
            f"this host has no time zone data for {name}; install the system's package tzdata, "
            "or write UTC"
        ) from missing


DayStarts = Annotated[
    DayStart,
    PlainValidator(parse_day_start),
    PlainSerializer(str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([01][0-9]|2[0-3]):[0-5][0-9]\s+\S+$",
            "examples": ["00:00 Asia/Shanghai", "00:00 UTC"],
        }
    ),
]
