"""What people see of money and of what stops buying, as JSON-able values."""

from __future__ import annotations

from typing import Any

from elasticd.core.budget import committed, spent_today, unrated
from elasticd.core.circuit import on_trial
from elasticd.core.lifecycle import NODE_PAID
from elasticd.core.pool_state import PoolState
from elasticd.core.spend import MS_PER_HOUR, Sums, node_price
from elasticd.core.state import State


def pool_troubles(state: State, pool: PoolState, now: float) -> list[dict[str, Any]]:
    """Each kind of trouble once, oldest first; ages in seconds.

    `seconds_left` `None`: until a reload, or until the provider answers. An offering whose time is
    over is a trouble only while it is being asked for once more.
    """
    told = [
        _trouble(t.kind, t.text, now - t.since, t.count, None if t.until is None else t.until - now)
        for t in pool.troubles.values()
    ]
    trial = on_trial(state, pool)
    aside = sorted(pool.aside.items())
    left_alone = {key: a for key, a in aside if a.until > now or key in trial}
    for kind in dict.fromkeys(a.kind for a in left_alone.values()):
        asides = [(key, a) for key, a in left_alone.items() if a.kind == kind]
        names = ", ".join(key.removeprefix(f"{pool.spec.name}/") for key, _ in asides[:5])
        more = f" and {len(asides) - 5} more" if len(asides) > 5 else ""
        latest = max((a for _, a in asides), key=lambda a: a.until)
        text = f"{latest.why} ({names}{more})"
        since, count = min(a.since for _, a in asides), max(a.refusals for _, a in asides)
        told.append(_trouble(kind, text, now - since, count, latest.until - now))
    return sorted(told, key=lambda t: -t["age"])


def _trouble(kind: str, text: str, age: float, count: int, left: float | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "text": text,
        "age": age,
        "count": count,
        "seconds_left": None if left is None else max(0.0, left),
    }


def spend_summary(state: State, now: float) -> dict[str, Any]:
    """Rent per hour and today; in millionths of the budget's currency where it can be converted."""
    budget, spend = state.budget, state.spend
    per_hour = _per_hour(state)
    return {
        "currency": budget.currency,
        "per_hour": committed(state),
        "today": spent_today(state),
        "max_per_hour": budget.max_per_hour,
        "max_per_day": budget.max_per_day,
        "day_ends_in": None if spend.ends is None else max(0.0, spend.ends - now),
        "pools": _rows(per_hour, spend.pools),
        "models": _rows(_models_per_hour(state), spend.models),
        "unrated": sorted({*unrated(state), *_unrated_today(state)}),
        "blocked": _blocked(state),
    }


def _rows(per_hour: Sums, today: Sums) -> dict[str, dict[str, Any]]:
    """By name; one that costs in several currencies has a row for each."""
    keys = sorted({*per_hour, *today})
    several = {name for name, _ in keys if sum(name == other for other, _ in keys) > 1}
    return {
        f"{name} ({currency})" if name in several else name: {
            "currency": currency,
            "per_hour": per_hour.get((name, currency), 0),
            "today": -(-today.get((name, currency), 0) // MS_PER_HOUR),
        }
        for name, currency in keys
    }


def _per_hour(state: State) -> Sums:
    sums: Sums = {}
    for node in state.fleet.nodes(NODE_PAID):
        price = node_price(node)
        if price is not None:
            sums[node.pool, price[1]] = sums.get((node.pool, price[1]), 0) + price[0]
    return sums


def _models_per_hour(state: State) -> Sums:
    sums: Sums = {}
    for node in state.fleet.nodes(NODE_PAID):
        price = node_price(node)
        if price is None:
            continue
        gpus = max(node.expected_gpus, 1)
        for replica in state.fleet.live_on(node.id):
            key = (replica.model, price[1])
            sums[key] = sums.get(key, 0) + price[0] * min(replica.gpus, gpus) // gpus
    return sums


def _unrated_today(state: State) -> list[str]:
    rated = {state.budget.currency, *(name for name, _ in state.budget.rates)}
    return [currency for currency in state.spend.today() if currency not in rated]


def _blocked(state: State) -> str:
    """What the budget keeps from being bought now."""
    for model in state.models.values():
        for part in model.blocked.split("; "):
            if "budget: " in part:
                return part
    return ""
