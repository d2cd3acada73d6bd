"""The money cap: what could pass it is not bought, and at the cap machines are given back.

Everything at the worst-case price. What is not known (a currency without a rate, a day that
nobody has told of) stops buying: it is never read as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticd.core.drain import BUDGET, CLOSING_TIME, send_away, withdraw
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NODE_PAID, NodePhase
from elasticd.core.specs import Budget
from elasticd.core.spend import node_price
from elasticd.core.state import State, Step
from elasticd.provider import Offering

HORIZON = 3600.0
"""Seconds that a purchase must be affordable for within the day, or to its end if that is nearer:
a machine that has to go again as soon as it is up is money for nothing."""

GIVE_BACK_TIME = CLOSING_TIME + 120.0
"""Seconds that giving machines back may take: so much rent is kept in reserve of the day's cap."""

_MICROS = 1_000_000


def in_budget_currency(budget: Budget, amount: int, currency: str) -> int | None:
    """Millionths of the budget's currency, rounded up; `None` without a rate."""
    if currency == budget.currency or amount == 0:
        return amount
    rate = dict(budget.rates).get(currency)
    return None if rate is None else -(-amount * rate // _MICROS)


def committed(state: State, step: Step | None = None) -> int | None:
    """What all that is paid for costs per hour; `None` where a part of it cannot be said."""
    if step is not None and step.committed is not None:
        return step.committed
    total = 0
    for amount, currency in _prices(state):
        converted = in_budget_currency(state.budget, amount, currency)
        if converted is None:
            return None
        total += converted
    if step is not None:
        step.committed = total
    return total


def unrated(state: State) -> list[str]:
    """Currencies that cost something now and have no rate."""
    return sorted({c for a, c in _prices(state) if in_budget_currency(state.budget, a, c) is None})


def _prices(state: State) -> list[tuple[int, str]]:
    nodes = (_worst_price(state, n) for n in state.fleet.nodes(NODE_PAID))
    orphans = (o.instance.offering for p in state.pools.values() for o in p.orphans.values())
    return [
        *(p for p in nodes if p is not None),
        *((o.price_micros, o.currency) for o in orphans if o is not None),
    ]


def _worst_price(state: State, node: Node) -> tuple[int, str] | None:
    """What a node may cost at most. Of offerings in several currencies it is the dearest by their
    rates; one without a rate is the worst, for nobody knows what it costs."""
    if node.offering is not None or not node.offerings:
        return node_price(node)

    def cost(offering: Offering) -> tuple[bool, int]:
        price = in_budget_currency(state.budget, offering.price_micros, offering.currency)
        return (price is None, offering.price_micros if price is None else price)

    worst = max(node.offerings, key=cost)
    return worst.price_micros, worst.currency


def spent_today(state: State) -> int | None:
    """Millionths of the budget's currency since the day began; `None` where a rate is missing."""
    total = 0
    for currency, amount in state.spend.today().items():
        converted = in_budget_currency(state.budget, amount, currency)
        if converted is None:
            return None
        total += converted
    return total


def affordable(
    state: State, step: Step, offers: Sequence[Offering]
) -> tuple[tuple[Offering, ...], str]:
    """The offers that stay within the caps, in their order; if none does, why."""
    budget = state.budget
    if budget.max_per_hour is None and budget.max_per_day is None:
        return tuple(offers), ""
    kept, why = [], ""
    for offer in offers:
        refusal = _refusal(state, step, offer)
        if refusal:
            why = why or refusal
        else:
            kept.append(offer)
    return tuple(kept), why


def _refusal(state: State, step: Step, offer: Offering) -> str:
    budget = state.budget
    price = in_budget_currency(budget, offer.price_micros, offer.currency)
    if price is None:
        return f"budget: no rate for {offer.currency} in budget.rates"
    if price == 0:
        return ""
    return _too_dear(state, step, price)


def _too_dear(state: State, step: Step, price: int) -> str:
    """Why the caps do not allow what is paid for and `price` per hour more; empty: they do."""
    budget, rent = state.budget, committed(state, step)
    if rent is None:
        return f"budget: no rate for {', '.join(unrated(state))} in budget.rates"
    if budget.max_per_hour is not None and rent + price > budget.max_per_hour:
        return (
            f"budget: {_money(budget, rent)}/h are committed, with {_money(budget, price)}/h more "
            f"it would pass max_per_hour {_money(budget, budget.max_per_hour)}"
        )
    return _day_refusal(state, step, rent + price)


def _day_refusal(state: State, step: Step, rent: int) -> str:
    budget, spend = state.budget, state.spend
    if budget.max_per_day is None:
        return ""
    if spend.ends is None:
        return "budget: when the day of max_per_day begins is not known yet"
    spent = spent_today(state)
    if spent is None:
        return "budget: what was spent today cannot be said, a rate is missing in budget.rates"
    seconds = min(HORIZON, max(0.0, spend.ends - step.now)) + GIVE_BACK_TIME
    if spent + _rent_for(rent, seconds) <= budget.max_per_day:
        return ""
    return (
        f"budget: {_money(budget, spent)} of max_per_day {_money(budget, budget.max_per_day)} are "
        f"spent, at {_money(budget, rent)}/h it would soon be passed"
    )


def keep_to_budget(state: State, step: Step) -> None:
    """Gives machines back that the caps no longer allow: the least useful, then the dearest."""
    budget = state.budget
    _take_back(state, step)
    if budget.max_per_hour is not None:
        _keep_to_hour(state, step, budget.max_per_hour)
    if budget.max_per_day is not None:
        _keep_to_day(state, step, budget.max_per_day)


def _take_back(state: State, step: Step) -> None:
    """What still drains for the caps stays if they allow all that is paid for now."""
    going = [n for n in state.fleet.nodes({NodePhase.DRAINING}) if BUDGET in n.notices]
    if going and not state.down and not _too_dear(state, step, 0):
        for node in going:
            withdraw(state, step, node, BUDGET, "the budget allows it again")


def _keep_to_hour(state: State, step: Step, cap: int) -> None:
    """Purchases never pass it: a lower cap, or a price that rose, may."""
    rent = committed(state)
    if rent is None or rent <= cap:
        return
    for node in state.fleet.nodes({NodePhase.DRAINING, NodePhase.TERMINATING}):
        rent -= _price_of(state, node)
    for node in sorted(_payable(state), key=lambda n: _worth(state, n)):
        if rent <= cap:
            return
        rent -= _price_of(state, node)
        why = f"budget: the rent is above max_per_hour {_money(state.budget, cap)}"
        send_away(state, step, node, BUDGET, why)


def _keep_to_day(state: State, step: Step, cap: int) -> None:
    rent, spent, ends = committed(state), spent_today(state), state.spend.ends
    if not rent or spent is None or ends is None:
        return
    left = cap - spent - _rent_for(rent, GIVE_BACK_TIME)
    reached = step.now + max(0, left) * 3600.0 / rent
    if reached + GIVE_BACK_TIME >= ends or not (left <= 0 or step.due(reached)):
        return
    why = f"budget: {_money(state.budget, spent)} of {_money(state.budget, cap)} spent today"
    for node in _payable(state):
        send_away(state, step, node, BUDGET, why)


def _payable(state: State) -> list[Node]:
    going = {NodePhase.DRAINING, NodePhase.TERMINATING}
    nodes = state.fleet.nodes(NODE_PAID - going)
    return [n for n in nodes if _price_of(state, n)]


def _price_of(state: State, node: Node) -> int:
    price = _worst_price(state, node)
    return 0 if price is None else in_budget_currency(state.budget, *price) or 0


def _worth(state: State, node: Node) -> tuple[int, int, float, str]:
    """Smallest first: fewest replicas, dearest, youngest."""
    return (len(state.fleet.live_on(node.id)), -_price_of(state, node), -node.created, node.id)


def _rent_for(rent: int, seconds: float) -> int:
    return -(-rent * int(seconds) // 3600)


def _money(budget: Budget, micros: int) -> str:
    return f"{micros / _MICROS:.2f} {budget.currency}"
