"""Taking over the operator's wishes, at start and at each reload."""

from __future__ import annotations

from elasticd.core.circuit import give_another_chance
from elasticd.core.demand import Demand
from elasticd.core.events import Configured
from elasticd.core.failures import PROBE_PERIOD
from elasticd.core.pool_state import PoolState
from elasticd.core.saved import restore_model, restore_pool
from elasticd.core.specs import ModelSpec
from elasticd.core.state import ModelState, State, Step


def configure(state: State, step: Step, event: Configured) -> None:
    """Replaces what is wanted; what is known of things that stay, stays known."""
    spec = event.spec
    state.cluster = spec.cluster
    pools = {}
    for pool in spec.pools:
        known = state.pools.get(pool.name)
        if known is None:
            known = PoolState(pool)
            restore_pool(known, state.saved_pools.pop(pool.name, {}), step)
        known.spec = pool
        if event.retry_failed:
            give_another_chance(known, step.now)
        pools[pool.name] = known
    state.pools = pools
    state.budget = spec.budget
    if event.changed:
        step.because("fleet", f"reloaded: {', '.join(event.changed)}")
    state.models = {m.name: _model(state, step, m, event.retry_failed) for m in spec.models}


def _model(state: State, step: Step, spec: ModelSpec, retry_failed: bool) -> ModelState:
    delays = (spec.scaling.upscale_delay, spec.scaling.downscale_delay)
    known = state.models.get(spec.name)
    if known is None:
        known = ModelState(spec, Demand(*delays))
        restore_model(known, state.saved_models.pop(spec.name, {}))
        if known.failed:
            known.retry_at = step.now + PROBE_PERIOD
    elif retry_failed or known.spec.spec_hash != spec.spec_hash:
        if known.failures:
            step.because(f"model:{spec.name}", "gets another chance: configured anew")
        known.give_another_chance()
    if known.spec.spec_hash != spec.spec_hash:
        known.room_made_at = None
    known.spec = spec
    known.demand.retime(*delays)
    return known
