"""How many replicas a model should have, and why.

`wanted = ceil(concurrency / target_ongoing_requests)`, within the bounds. Up: what was wanted
during the whole of `upscale_delay` (from zero at once). Down: to what was wanted at any moment of
`downscale_delay`; to zero only after `scale_to_zero_after` without a request. No data, no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticd.core.demand import Demand
from elasticd.core.specs import Scaling


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """How many replicas, and the chain of reasons that led there."""

    replicas: int
    reasons: tuple[str, ...]

    def at_least(self, floor: int, why: str) -> ReplicaTarget:
        """Raised to `floor`, with the reason added."""
        if self.replicas >= floor:
            return self
        return ReplicaTarget(floor, (*self.reasons, f"{why} {floor}"))

    def at_most(self, cap: int, why: str) -> ReplicaTarget:
        """Lowered to `cap`, with the reason added."""
        if self.replicas <= cap:
            return self
        return ReplicaTarget(cap, (*self.reasons, f"{why} {cap}"))


@dataclass(frozen=True, slots=True)
class Service:
    """What there is of a model while its target is decided.

    `since`: when the oldest replica that serves became ready (`None`: none serves). `coming`: none
    serves yet, but one is on its way.
    """

    since: float | None = None
    coming: bool = False


def decide_target(
    now: float, scaling: Scaling, demand: Demand, current: int | None, service: Service
) -> ReplicaTarget:
    """The target that follows `current` (`None`: the model is new)."""
    if current is None:
        if not demand.known(now):
            return ReplicaTarget(scaling.min_replicas, (f"min_replicas {scaling.min_replicas}",))
        current = scaling.min_replicas
    return _bounded(_from_demand(now, scaling, demand, current, service), scaling)


def _bounded(target: ReplicaTarget, scaling: Scaling) -> ReplicaTarget:
    return target.at_most(scaling.max_replicas, "max_replicas").at_least(
        scaling.min_replicas, "min_replicas"
    )


def _from_demand(
    now: float, scaling: Scaling, demand: Demand, current: int, service: Service
) -> ReplicaTarget:
    if not demand.known(now):
        return ReplicaTarget(current, ("demand not known, unchanged",))
    seen = f"{demand.queued} queued + {demand.in_flight} in flight"
    wanted = _replicas_for(demand.concurrency, scaling)
    if current == 0 and wanted > 0:
        return ReplicaTarget(wanted, (f"{seen}: demand wants {wanted}, at once from zero",))
    lasting = _replicas_for(demand.rising.low(), scaling)
    if demand.rising.covered(now) and lasting > current:
        return ReplicaTarget(lasting, (f"{seen}: demand wants {lasting}",))
    needed = _replicas_for(demand.falling.high(), scaling)
    if needed < current == scaling.min_replicas:
        return ReplicaTarget(current, (f"{seen}: demand wants {needed}", f"min_replicas {current}"))
    if needed < current:
        return _lower(now, scaling, demand, _Down(current, needed, seen), service)
    if wanted > current:
        return ReplicaTarget(
            current, (f"{seen}: demand wants {wanted}, waiting {scaling.upscale_delay:g} s",)
        )
    return ReplicaTarget(current, (f"{seen}: {current} is right",))


@dataclass(frozen=True, slots=True)
class _Down:
    """From how many to how many, and what was seen."""

    current: int
    needed: int
    seen: str


def _lower(
    now: float, scaling: Scaling, demand: Demand, down: _Down, service: Service
) -> ReplicaTarget:
    current, needed = down.current, down.needed
    wants = f"{down.seen}: demand wants {needed}"
    if not demand.falling.covered(now):
        return ReplicaTarget(current, (f"{wants}, waiting {scaling.downscale_delay:g} s",))
    if needed == 0 and scaling.min_replicas == 0:
        # What is still loading has had no chance yet to answer whoever it was started for.
        if service.coming:
            return ReplicaTarget(min(current, 1), (wants, "kept until it has served"))
        starts = [t for t in (demand.active_at, service.since) if t is not None]
        if starts and now - max(starts) < scaling.scale_to_zero_after:
            kept = f"kept for {scaling.scale_to_zero_after:g} s after the last request"
            return ReplicaTarget(min(current, 1), (wants, kept))
    return ReplicaTarget(needed, (wants,))


def _replicas_for(concurrency: float, scaling: Scaling) -> int:
    return math.ceil(concurrency / scaling.target_ongoing_requests)
