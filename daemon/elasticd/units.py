"""Values with units, as people write them: durations, sizes, money. Both ways, exactly.

A bare number is refused wherever a unit belongs: `idle_timeout: 120` is two minutes to one reader
and two milliseconds to the next. Nothing is ever read as zero or as endless by accident. Whatever
`format_…` writes, `parse_…` reads back as the same value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

_UNIT_MICROSECONDS: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SHORTEST = _UNIT_MICROSECONDS["ms"]
_LONGEST = 3650 * _UNIT_MICROSECONDS["d"]
_LONG_NAMES: Final = {"d": "day", "h": "hour", "m": "min", "s": "sec"}
_BY_WORD = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)")

_SIZE = re.compile(rf"({_NUMBER})(B|[kKMGTP]B|[KMGTP]iB)")
_UNIT_BYTES: Final = {
    **{f"{unit}iB": 1024**power for power, unit in enumerate("KMGTP", 1)},
    **{f"{unit}B": 1000**power for power, unit in enumerate("kMGTP", 1)},
    "KB": 1000,
    "B": 1,
}
_LARGEST_SIZE = 2**60

_MONEY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ([A-Z]{3})")


class Money(NamedTuple):
    """An amount in millionths of a currency, so that sums are exact."""

    micros: int
    currency: str


def parse_duration(value: Any) -> float:
    """Seconds of `"90s"`, `"5m"`, `"1h30m"`: nothing, or one millisecond to ten years.

    Raises `ValueError` on anything else.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        parts = _PART.findall(value)
        exact = sum(Decimal(number) * _UNIT_MICROSECONDS[unit] for number, unit in parts)
        if exact == 0 or _SHORTEST <= exact <= _LONGEST:
            return round(exact) / 1_000_000
        raise ValueError(f"not a useful duration: {value[:40]!r}; allowed: 0s, or 1ms to 3650d")
    allowed = "allowed: numbers with the units ms, s, m, h, d, for example 90s, 5m or 1h30m"
    number = str(value)[:40]
    if _is_bare(value):
        raise ValueError(f"a duration needs a unit: write {number}s or {number}m, not {number}")
    if isinstance(value, str) and (told := _in_words(value)):
        raise ValueError(f"not a duration: {number!r}; write {told}; {allowed}")
    raise ValueError(f"{_not('a duration', value)}; {allowed}")


def _in_words(text: str) -> str:
    """`"2 min"` → `2m`; empty if there is no telling what was meant."""
    found = _BY_WORD.fullmatch(text.strip())
    if not found:
        return ""
    number, word = found[1], found[2].lower()
    if word in _UNIT_MICROSECONDS:
        return f"{number}{word}"
    units = [unit for unit, name in _LONG_NAMES.items() if word.startswith(name)]
    return f"{number}{units[0]}" if units else ""


def format_duration(seconds: float) -> str:
    """The shortest way `parse_duration` reads back: `90.0` → `"1m30s"`, `1.5` → `"1s500ms"`."""
    left, parts = round(seconds * 1_000_000), []
    for unit, size in _UNIT_MICROSECONDS.items():
        count, left = divmod(left, size)
        if unit == "ms" and left:
            parts.append(f"{Decimal(count * size + left) / size:f}ms")
        elif count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(value: Any) -> int:
    """Bytes of `"16GiB"` (2^30 each) or `"10GB"` (10^9 each). Raises `ValueError` otherwise."""
    if isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        size = Decimal(found[1]) * _UNIT_BYTES[found[2]]
        if size == size.to_integral_value() and size <= _LARGEST_SIZE:
            return int(size)
        raise ValueError(f"not a useful size: {value[:40]!r}; allowed: whole bytes up to 1024PiB")
    allowed = "allowed: for example 512MiB, 16GiB (1024s) or 10GB (1000s)"
    given = str(value)[:40]
    if _is_bare(value):
        raise ValueError(f"a size needs a unit: write {given}GiB or {given}GB, not {given}")
    raise ValueError(f"{_not('a size', value)}; {allowed}")


def format_size(size: int) -> str:
    """The shortest exact way: `17179869184` → `"16GiB"`, `10000000000` → `"10GB"`."""
    if size == 0:
        return "0B"
    whole = [(size // n, u) for u, n in _UNIT_BYTES.items() if size % n == 0 and u != "KB"]
    count, unit = min(whole)
    return f"{count}{unit}"


def parse_money(value: Any) -> Money:
    """`"2.50 USD"`: an amount and the three letters of its currency. Raises `ValueError`."""
    if isinstance(value, Money):
        return value
    if isinstance(value, str) and (found := _MONEY.fullmatch(value)):
        return Money(int(Decimal(found[1]) * 1_000_000), found[2])
    given = str(value)[:40]
    if _is_bare(value):
        raise ValueError(f'an amount needs its currency: write "{given} USD", not {given}')
    allowed = 'allowed: an amount and a currency, for example "2.50 USD" or "0.10 CNY"'
    raise ValueError(f"{_not('an amount of money', value)}; {allowed}")


def format_money(money: Money) -> str:
    """With the two decimals people expect, or as many as it takes: `"0.10 USD"`."""
    whole, rest = divmod(money.micros, 1_000_000)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{whole}.{decimals} {money.currency}"


def _not(what: str, value: Any) -> str:
    if value is None:
        return f"has no value, where {what} belongs"
    if isinstance(value, bool):
        return f"not {what}: {truth_value(value)}"
    return f"not {what}: {str(value)[:40]!r}"


def truth_value(value: bool) -> str:
    """As a YAML file has it; many a word becomes one unseen."""
    others = "on and yes" if value else "off and no"
    return f"{str(value).lower()}, as which YAML also reads {others} without quotes"


def _is_bare(value: Any) -> bool:
    """Whether a value is a number without a unit, in quotes or not."""
    if isinstance(value, str):
        return bool(re.fullmatch(_NUMBER, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
