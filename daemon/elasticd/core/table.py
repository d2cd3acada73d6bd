"""The routing table that the fleet's state amounts to."""

from __future__ import annotations

from elasticd.core.fleet import Replica
from elasticd.core.lifecycle import COUNTED, NODE_COMING, ReplicaPhase
from elasticd.core.state import ModelState, State
from elasticd.routing_table import Endpoint, ModelRoute, Tier


def routes(state: State) -> tuple[ModelRoute, ...]:
    """One route a model, in the order of the configuration; keys are left empty."""
    return tuple(_route(state, model) for model in state.models.values())


def _route(state: State, model: ModelState) -> ModelRoute:
    replicas = state.fleet.replicas({ReplicaPhase.READY, ReplicaPhase.DRAINING}, model.spec.name)
    served = any(r.phase is ReplicaPhase.READY and r.broken_at is None for r in replicas)
    return ModelRoute(
        model=model.spec.name,
        endpoints=tuple(_endpoint(r, model, served) for r in replicas if r.url),
        # Nothing is coming: whoever asks is told so at once.
        max_wait=0.0 if state.down else model.spec.max_wait,
        queue_limit=model.spec.queue_limit,
        state="" if served else _waiting_for(state, model),
    )


def _endpoint(replica: Replica, model: ModelState, served: bool) -> Endpoint:
    if replica.phase is ReplicaPhase.READY and replica.broken_at is None:
        tier = Tier.OPEN
    elif replica.phase is ReplicaPhase.DRAINING and replica.order != "stop" and not served:
        tier = Tier.LAST_RESORT
    else:
        tier = Tier.CLOSED
    return Endpoint(
        replica_id=replica.id,
        incarnation=replica.incarnation,
        url=replica.url,
        key="",
        slots=model.spec.scaling.max_ongoing_requests,
        tier=tier,
        node_id=replica.node_id,
        spec_hash=replica.spec_hash,
    )


def _waiting_for(state: State, model: ModelState) -> str:
    if state.down:
        return f"everything is being given back ({state.down})"
    if model.blocked:
        return model.blocked
    counted = state.fleet.replicas(COUNTED, model.spec.name)
    if any(r.phase is ReplicaPhase.STARTING for r in counted):
        return "a replica is starting"
    if any(r.phase is ReplicaPhase.PENDING for r in counted):
        coming = bool(state.fleet.nodes(NODE_COMING))
        return "a node is on its way" if coming else "waiting for a node"
    return "no replica is wanted now" if not counted else "its replica is not reachable"
