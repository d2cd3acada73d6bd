"""Rules about money: everything that costs can be counted in one currency, or that is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding
from elasticd.units import Money, format_money

_AT: Place = ("budget",)
_CAPS: tuple[Place, ...] = ((*_AT, "max_per_hour"), (*_AT, "max_per_day"))
_RATES: Place = (*_AT, "rates")
_HOURS = 24
_OWN_HARDWARE = ("local", "ssh", "fake")
"""Providers of machines that cost no rent. Others say so with `paid: False` in their defaults."""


def budget_rules(draft: Draft) -> Iterator[Finding]:
    """What cannot hold together."""
    yield from _rates(draft)
    yield from _caps_in_two_currencies(draft)
    yield from _prices_without_rate(draft)


def budget_advice(draft: Draft) -> Iterator[Finding]:
    """What holds and will surprise."""
    yield from _cap_never_reached(draft)
    yield from _cap_below_every_price(draft)
    yield from _nothing_caps_the_rent(draft)


def _rates(draft: Draft) -> Iterator[Finding]:
    budget = draft.settings.budget
    base = budget.currency
    for name, rate in budget.rates.items():
        place: Place = (*_RATES, name)
        if name == rate.currency:
            yield Finding(place, f"{name} against itself; remove it, or name another currency")
        elif name == base:
            yield Finding(
                place,
                f"the budget is in {base}: write what one {rate.currency} is worth in {base}, "
                f'{rate.currency}: "{_inverse(rate, name)}"',
                _CAPS,
            )
        elif rate.currency != base:
            yield Finding(
                place,
                f"is in {rate.currency}, and the budget in {base}; write what one {name} is worth "
                f"in {base}",
                (*_CAPS, *_other_rates(draft, name)),
            )


def _other_rates(draft: Draft, name: str) -> tuple[Place, ...]:
    return tuple((*_RATES, other) for other in draft.settings.budget.rates if other != name)


def _inverse(rate: Money, name: str) -> str:
    return format_money(Money(max(round(1e12 / rate.micros), 1), name))


def _caps_in_two_currencies(draft: Draft) -> Iterator[Finding]:
    budget = draft.settings.budget
    for key, cap in budget.caps:
        if budget.converted(cap) is None:
            yield Finding(
                (*_AT, key),
                f"is in {cap.currency} and the other cap in {budget.currency}; write both in one "
                f'currency, or add the rate: rates: {{{cap.currency}: "… {budget.currency}"}}',
                (*_CAPS, _RATES),
            )


def _prices_without_rate(draft: Draft) -> Iterator[Finding]:
    """Of prices that the configuration itself tells. Others are refused when they are offered."""
    budget = draft.settings.budget
    if not budget.caps:
        return
    for index, pool in enumerate(draft.settings.node_pools):
        for key, price in _prices(draft.options.get(pool.name)).items():
            if budget.converted(price) is None:
                yield Finding(
                    ("node_pools", index, key),
                    f"is in {price.currency}, and the budget in {budget.currency} has no rate for "
                    f'it; add budget.rates: {{{price.currency}: "… {budget.currency}"}}',
                    (*_CAPS, _RATES),
                )


def price_currency(options: Iterable[Any]) -> str | None:
    """The one currency that pools' own keys name prices in; `None`: none, or several."""
    prices = [price for own in options for price in _prices(own).values() if price.micros]
    currencies = {price.currency for price in prices}
    return currencies.pop() if len(currencies) == 1 else None


def _prices(options: Any) -> Mapping[str, Money]:
    """What a pool's own keys say about money; options may be of any class."""
    fields = getattr(type(options), "model_fields", {})
    values = {key: getattr(options, key, None) for key in fields}
    return {key: value for key, value in values.items() if isinstance(value, Money)}


def _cap_never_reached(draft: Draft) -> Iterator[Finding]:
    budget = draft.settings.budget
    if budget.max_per_hour is None or budget.max_per_day is None:
        return
    hour, day = budget.converted(budget.max_per_hour), budget.converted(budget.max_per_day)
    if hour is not None and day is not None and day > _HOURS * hour:
        most = format_money(Money(_HOURS * hour, budget.currency or ""))
        yield Finding(
            (*_AT, "max_per_day"),
            f"is never reached: max_per_hour allows {most} a day; lower this, or raise that",
            (*_CAPS, _RATES),
        )


def _cap_below_every_price(draft: Draft) -> Iterator[Finding]:
    """Only where all prices are told by the configuration: others may be lower."""
    budget = draft.settings.budget
    if budget.max_per_hour is None or (cap := budget.converted(budget.max_per_hour)) is None:
        return
    for model in draft.settings.models:
        pools = [pool for pool in draft.pools_of(model) if pool.max_nodes]
        told = [_prices(draft.options.get(pool.name)).get("price") for pool in pools]
        prices = [None if price is None else budget.converted(price) for price in told]
        known = [price for price in prices if price is not None]
        if model.scaling.min_replicas and known and len(known) == len(prices) and min(known) > cap:
            least = format_money(Money(min(known), budget.currency or ""))
            yield Finding(
                (*_AT, "max_per_hour"),
                f"no machine may be rented for {model.name}: the cheapest costs {least} an hour, "
                f"and min_replicas asks for {model.scaling.min_replicas}; raise this",
                (*_CAPS, _RATES),
            )
            return


def _nothing_caps_the_rent(draft: Draft) -> Iterator[Finding]:
    if draft.settings.budget.caps:
        return
    for index, pool in enumerate(draft.settings.node_pools):
        plugin = draft.plugins.get(pool.name)
        free = pool.provider in _OWN_HARDWARE
        if plugin is not None and pool.max_nodes and plugin.defaults.get("paid", not free):
            yield Finding(
                ("node_pools", index, "provider"),
                f"machines of {pool.provider} cost money and nothing caps it; write "
                'budget: {max_per_hour: "40 USD", max_per_day: "600 USD"} or what you can bear',
                (*_CAPS, ("node_pools", index, "max_nodes")),
            )
            return
