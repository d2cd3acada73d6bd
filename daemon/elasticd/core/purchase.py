"""Renting: the cheapest offering that fits, or why there is none."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from elasticd.core.budget import affordable, in_budget_currency
from elasticd.core.circuit import on_trial, what_stops_buying
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NodePhase
from elasticd.core.pool_state import PoolState
from elasticd.core.shapes import gpus_on
from elasticd.core.specs import ModelSpec
from elasticd.core.state import ModelState, State, Step
from elasticd.provider import Offering

AGENT_PATIENCE = 60.0
"""Seconds for which an agent that has answered before may be away while machines are rented."""


def buy(state: State, step: Step, model: ModelState) -> Node | None:
    """Asks for a machine of the pool with the cheapest offering that fits."""
    best: tuple[PoolState, tuple[Offering, ...]] | None = None
    for name in model.spec.pools:
        pool = state.pools.get(name)
        offers = _for_sale(state, step, pool, model.spec)[0] if pool is not None else ()
        if pool is None or not offers:
            continue
        if best is None or _cost(state, offers[0]) < _cost(state, best[1][0]):
            best = (pool, offers)
    if best is None:
        model.unplaced = True
        return None
    pool, offers = best
    node = Node(
        id=state.fleet.mint("n"),
        pool=pool.spec.name,
        phase=NodePhase.REQUESTED,
        created=step.now,
        since=step.now,
        offerings=offers,
    )
    step.because(
        f"node:{node.id}",
        f"rented for {model.spec.name}: {offers[0].id} at {offers[0].price_micros / 1e6:.2f} "
        f"{offers[0].currency}/h is the cheapest that fits",
    )
    _commit(state, step, offers)
    return state.fleet.put_node(node)


def _cost(state: State, offering: Offering) -> tuple[bool, int]:
    """What prices are compared by: in the budget's currency, those without a rate last."""
    price = in_budget_currency(state.budget, offering.price_micros, offering.currency)
    return (price is None, offering.price_micros if price is None else price)


def _commit(state: State, step: Step, offers: tuple[Offering, ...]) -> None:
    """Later purchases of this step count it, at the dearest it may become."""
    if step.committed is not None:
        prices = (in_budget_currency(state.budget, o.price_micros, o.currency) for o in offers)
        step.committed += max((p for p in prices if p is not None), default=0)


class Refusal(enum.Enum):
    """What kind of no it is: never, not now since all is taken, or nobody knows."""

    NEVER = "never"
    FULL = "full"
    UNKNOWN = "unknown"


def refusals(state: State, step: Step, spec: ModelSpec) -> tuple[str, bool]:
    """Why no pool sells, as things are after this step's purchases; whether all that fits is taken.

    The latter is false where anything is not known, and where nothing would ever fit.
    """
    told, kinds = [], set()
    for name in spec.pools:
        pool = state.pools.get(name)
        if pool is None:
            told.append(f"{name}: no such pool")
            continue
        offers, refusal, kind = _for_sale(state, step, pool, spec)
        kinds.add(Refusal.UNKNOWN if offers else kind)
        if refusal:
            told.append(f"{name}: {refusal}")
    return "; ".join(told), Refusal.FULL in kinds and Refusal.UNKNOWN not in kinds


def _for_sale(
    state: State, step: Step, pool: PoolState, spec: ModelSpec
) -> tuple[tuple[Offering, ...], str, Refusal]:
    """The pool's offerings that fit, cheapest first, or why nothing can be bought there."""
    if pool.spec.max_nodes == 0:
        return (), "closed (max_nodes 0)", Refusal.NEVER
    if pool.foreign:
        return (), f"machines there belong to another ledger ({pool.foreign})", Refusal.UNKNOWN
    if pool.listed_at is None or pool.offerings is None:
        return (), pool.last_error or "its machines are not listed yet", Refusal.UNKNOWN
    stopped = _nobody_to_join(state, step) or what_stops_buying(state, step, pool)
    if stopped:
        return (), stopped, Refusal.UNKNOWN
    wanted, unfit = _fitting(pool, spec)
    if not wanted:
        return (), unfit, Refusal.NEVER
    if state.fleet.paid_in(pool.spec.name) + len(pool.orphans) >= pool.spec.max_nodes:
        return (), f"max_nodes {pool.spec.max_nodes} reached{_leaving(state, pool)}", Refusal.FULL
    trial = on_trial(state, pool)
    fresh = [o for o in wanted if o.available and o.id not in trial and _not_aside(pool, o, step)]
    if not fresh:
        return (), _nothing_left(pool, wanted), Refusal.FULL
    offers, too_dear = affordable(state, step, fresh)
    if not offers:
        return (), too_dear, Refusal.FULL
    return tuple(sorted(offers, key=lambda o: (*_cost(state, o), o.id))), "", Refusal.UNKNOWN


def _nobody_to_join(state: State, step: Step) -> str:
    """A machine that comes while no agent answers costs money and cannot join."""
    away = state.agent_away_since
    if away is None or (state.cluster_seen_at is not None and not step.due(away + AGENT_PATIENCE)):
        return ""
    return f"no machine could join: the cluster agent does not answer ({state.cluster_detail})"


def _not_aside(pool: PoolState, offering: Offering, step: Step) -> bool:
    aside = pool.aside.get(offering.id)
    return aside is None or step.due(aside.until)


def _nothing_left(pool: PoolState, wanted: list[Offering]) -> str:
    """What the provider said of those that were set aside; without a word of it: sold out."""
    told = dict.fromkeys(pool.aside[o.id].why for o in wanted if o.id in pool.aside)
    return "; ".join(told) or "sold out"


def _leaving(state: State, pool: PoolState) -> str:
    """Machines that still count although they are on their way out."""
    ending = [n for n in state.fleet.nodes({NodePhase.TERMINATING}) if n.pool == pool.spec.name]
    count = len(ending) + len(pool.orphans)
    return f", {count} of them still ending" if count else ""


def _fitting(pool: PoolState, spec: ModelSpec) -> tuple[list[Offering], str]:
    """Offerings on which a replica can run; if there are none, what is needed and what there is."""
    kinds = [k for k in (pool.spec.accelerators, spec.accelerators) if k]
    known = pool.offerings or ()
    right = [o for o in known if all(o.gpu_kind in accepted for accepted in kinds)]
    fitting, why_not = [], ""
    for offering in right:
        gpus, why = gpus_on(spec, offering)
        if gpus is not None and gpus <= offering.gpu_count:
            fitting.append(offering)
        else:
            why_not = why or why_not
    if fitting:
        return fitting, ""
    needed = f"{spec.gpus_per_replica} GPUs on one machine"
    if not right and known and kinds:
        needed += f" ({', '.join(spec.accelerators or pool.spec.accelerators)})"
    return [], why_not or f"needs {needed}; there is {_shapes(known)}"


def _shapes(offerings: Iterable[Offering]) -> str:
    """`1 × L4, 4 × L4`: what one machine of each kind has."""
    shapes = sorted({(o.gpu_kind, o.gpu_count) for o in offerings})
    return ", ".join(f"{count} × {kind}" for kind, count in shapes) or "no offering at all"
