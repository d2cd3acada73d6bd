"""The routing table that the fleet's state amounts to."""

from __future__ import annotations

from elasticd.core.drain import is_late, serves_on
from elasticd.core.fleet import Replica
from elasticd.core.lifecycle import COUNTED, NODE_COMING, ReplicaPhase
from elasticd.core.state import ModelState, State, Step
from elasticd.routing_table import Endpoint, ModelRoute, Tier


class Routes:
    """Makes the routes of a state. Endpoints that have not changed are the same objects again, so
    that a table of thousands costs little to make and to compare."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Replica, Tier, int, Endpoint]] = {}

    def of(self, state: State, step: Step) -> tuple[ModelRoute, ...]:
        """One route a model, in the order of the configuration; keys are left empty."""
        earlier, self._made = self._made, {}
        return tuple(self._route(state, step, model, earlier) for model in state.models.values())

    def _route(
        self,
        state: State,
        step: Step,
        model: ModelState,
        earlier: dict[str, tuple[Replica, Tier, int, Endpoint]],
    ) -> ModelRoute:
        replicas = state.fleet.replicas(_ROUTED, model.spec.name)
        served = any(r.phase is ReplicaPhase.READY and r.broken_at is None for r in replicas)
        slots = model.spec.scaling.max_ongoing_requests
        endpoints = []
        for replica in replicas:
            if not replica.url:
                continue
            tier = _tier(state, step, replica, served)
            made = earlier.get(replica.id)
            if made is None or made[0] is not replica or made[1:3] != (tier, slots):
                made = (replica, tier, slots, _endpoint(replica, tier, slots))
            self._made[replica.id] = made
            endpoints.append(made[3])
        # Nothing is coming: whoever asks is told so at once.
        hopeless = bool(state.down) or (model.failed and not endpoints)
        return ModelRoute(
            model=model.spec.name,
            endpoints=tuple(endpoints),
            max_wait=0.0 if hopeless else model.spec.max_wait,
            queue_limit=model.spec.queue_limit,
            state="" if served else _waiting_for(state, model),
            continues=model.spec.continues,
            spec_hash=model.spec.spec_hash,
        )


_ROUTED = frozenset({ReplicaPhase.READY, ReplicaPhase.DRAINING})


def _tier(state: State, step: Step, replica: Replica, served: bool) -> Tier:
    if replica.phase is ReplicaPhase.READY and replica.broken_at is None:
        return Tier.OPEN
    if serves_on(state, step, replica):
        return Tier.OPEN
    draining = replica.phase is ReplicaPhase.DRAINING and replica.order != "stop"
    if draining and not served and not is_late(step, replica):
        return Tier.LAST_RESORT
    return Tier.CLOSED


def _endpoint(replica: Replica, tier: Tier, slots: int) -> Endpoint:
    return Endpoint(
        replica_id=replica.id,
        incarnation=replica.incarnation,
        url=replica.url,
        key="",
        slots=slots,
        tier=tier,
        node_id=replica.node_id,
        spec_hash=replica.spec_hash,
        cut_at=replica.stop_at if replica.phase is ReplicaPhase.DRAINING else None,
    )


def _waiting_for(state: State, model: ModelState) -> str:
    if state.down:
        return f"everything is being given back ({state.down})"
    if model.failed:
        return f"failed: {model.failures} starts in a row did not work, last: {model.last_cause}"
    if model.blocked:
        return model.blocked
    counted = state.fleet.replicas(COUNTED, model.spec.name)
    if any(r.phase is ReplicaPhase.STARTING for r in counted):
        return "a replica is starting"
    if any(r.phase is ReplicaPhase.PENDING for r in counted):
        coming = bool(state.fleet.nodes(NODE_COMING))
        return "a node is on its way" if coming else "waiting for a node"
    return "no replica is wanted now" if not counted else "its replica is not reachable"
