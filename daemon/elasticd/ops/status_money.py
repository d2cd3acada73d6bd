"""Money in the status: what the fleet costs, against which cap, and what cannot be said of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.text_table import clean

Thing = Mapping[str, Any]

_NEAR = 0.05
"""By how much of itself a shown amount may differ from the real one."""


def money(micros: int, currency: object = "") -> str:
    """Millionths as people write them: `3.20 USD`. An amount below that keeps the digits that say
    what it is, `0.0015 USD`: what costs something never looks free."""
    places = 2
    while places < 6 and abs(micros - round(micros, places - 6)) > abs(micros) * _NEAR:
        places += 1
    return f"{micros / 1e6:.{places}f} {currency or ''}".strip()


def exactly(micros: int) -> str:
    """A limit, with all the digits that it was given."""
    whole = f"{micros / 1e6:.6f}"
    return whole[:-4] + whole[-4:].rstrip("0")


def rent(things: Iterable[Thing]) -> str:
    """Rent per hour by currency; what has no known price is told, not counted as free."""
    sums: dict[str, int] = {}
    unknown = 0
    for thing in things:
        price = thing.get("price_micros")
        if price is None:
            unknown += 1
        else:
            currency = str(thing.get("currency") or "")
            sums[currency] = sums.get(currency, 0) + price
    told = [f"{money(micros, currency)}/h" for currency, micros in sorted(sums.items())]
    return " + ".join(told + ([f"{unknown} of unknown price"] if unknown else []))


def spend_line(spend: Thing) -> str:
    """`3.20 of 40.00 USD/h, today 14.10 of 600.00 USD (day ends in 3h)`; empty: never told."""
    if not spend:
        return ""
    currency = clean(spend.get("currency"))
    hour = f"{_of(spend.get('per_hour'), spend.get('max_per_hour'))} {currency}/h"
    today = f"today {_of(spend.get('today'), spend.get('max_per_day'))} {currency}"
    ends = spend.get("day_ends_in")
    return f"{hour}, {today}" + (f" (day ends in {age(ends)})" if ends is not None else "")


def money_problems(status: Thing) -> Iterator[str]:
    """What the budget keeps from being rented, and what nobody can count."""
    spend: Thing = status.get("spend") or {}
    capped = any(spend.get(key) is not None for key in ("max_per_hour", "max_per_day"))
    if spend.get("unrated") and capped:
        names = ", ".join(map(clean, spend["unrated"]))
        yield (
            f"spend: prices in {names} cannot be counted, so nothing is rented; add {names} to "
            "budget.rates, then `elasticd reload`"
        )
    blocked = clean(spend.get("blocked"))
    told = (clean(model.get("blocked")) for model in status.get("models", ()))
    if blocked and not any(blocked in text for text in told):
        yield f"spend: {blocked}"


def share(part: Thing, currency: object) -> str:
    """What one pool or model costs: `0.80 USD/h, today 3.10 USD`."""
    own = part.get("currency") or currency
    return f"{_amount(part.get('per_hour'))} {own}/h, today {_amount(part.get('today'))} {own}"


def _of(amount: int | None, cap: int | None) -> str:
    return _amount(amount) + (f" of {exactly(cap)}" if cap is not None else "")


def _amount(micros: int | None) -> str:
    """An amount that cannot be said is a question mark, not nothing."""
    return "?" if micros is None else money(micros)
