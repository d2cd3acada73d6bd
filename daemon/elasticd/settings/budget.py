"""The section `budget`: caps on what the fleet may cost, and what foreign money is worth."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from elasticd.option_types import Price
from elasticd.settings.day_start import DayStart, DayStarts
from elasticd.settings.sections import Section
from elasticd.units import Money

_CODE: Final = "[A-Z]{3}"
_USUAL_CODES: Final = {"RMB": "CNY", "YUAN": "CNY", "CNH": "CNY", "DOLLAR": "USD", "EURO": "EUR"}
"""How people call a currency, and how providers do."""


def _currency(text: str) -> str:
    usual = _USUAL_CODES.get(text.upper(), text.upper())
    if re.fullmatch(_CODE, text) and usual == text:
        return text
    hint = f"write {usual}" if re.fullmatch(_CODE, usual) else "write USD, CNY, EUR or another"
    raise ValueError(f"not a currency: {text[:20]!r}; {hint}: three capital letters (ISO 4217)")


def _usual(money: Money) -> Money:
    _currency(money.currency)
    return money


def _some(money: Money) -> Money:
    if money.micros <= 0:
        raise ValueError(
            "must be more than nothing, or no machine could ever be rented; to rent none write "
            "`max_nodes: 0` in each pool, to have no cap leave this out"
        )
    return _usual(money)


def _worth(money: Money) -> Money:
    if money.micros <= 0:
        raise ValueError("must be worth more than nothing: what it pays for would count as free")
    return _usual(money)


Cap = Annotated[Price, AfterValidator(_some)]
Rate = Annotated[Price, AfterValidator(_worth)]
Currency = Annotated[str, AfterValidator(_currency)]


class Budget(Section):
    """What the rent of machines may come to. Each counts at its worst-case price."""

    max_per_hour: Cap | None = None
    """The most that all machines together may cost per hour. Without it: any rate."""
    max_per_day: Cap | None = None
    """The most that is spent from one `day_starts` to the next. Without it: any sum."""
    day_starts: DayStarts = DayStart()
    """When the day begins, on the clocks of a time zone, as "00:00 Asia/Shanghai"."""
    rates: dict[Currency, Rate] = Field(default_factory=dict)
    """What one unit of another currency is worth in that of the caps, as CNY: "0.14 USD"."""

    @property
    def caps(self) -> tuple[tuple[str, Money], ...]:
        """Those that are set, by key."""
        pairs = (("max_per_hour", self.max_per_hour), ("max_per_day", self.max_per_day))
        return tuple((key, cap) for key, cap in pairs if cap is not None)

    @property
    def currency(self) -> str | None:
        """What everything is counted in; `None`: nothing here says so.

        That of the caps; of two, the one that the other has a rate in.
        """
        currencies = [cap.currency for _, cap in self.caps]
        targets = [rate.currency for rate in self.rates.values()]
        both = [currency for currency in currencies if currency in targets]
        return next(iter([*both, *currencies, *targets]), None)

    def converted(self, money: Money) -> int | None:
        """Millionths of `currency`, rounded down; `None` where the rate is missing."""
        if money.currency == self.currency or not money.micros:
            return money.micros
        rate = self.rates.get(money.currency)
        if rate is None or rate.currency != self.currency:
            return None
        return money.micros * rate.micros // 1_000_000
