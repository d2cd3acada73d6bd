"""What people see of the core's memory, as one JSON-able value."""

from __future__ import annotations

from typing import Any

from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.state import ModelState, PoolState, State

SHOWN_AFTER_END = 600.0
"""Seconds for which ended nodes and replicas stay in the list, with their reason."""


def status(state: State, now: float) -> dict[str, Any]:
    """The whole picture at `now`; ages in seconds, `None` where a thing has never been seen."""
    used = state.fleet.occupied()
    return {
        "at": now,
        "cluster": state.cluster,
        "ledger_id": state.ledger_id,
        "models": [_model(state, m, now) for m in state.models.values()],
        "nodes": [
            _node(n, used.get(n.id, 0), now)
            for n in state.fleet.nodes()
            if n.phase is not NodePhase.GONE or now - n.since < SHOWN_AFTER_END
        ],
        "replicas": [
            _replica(r)
            for r in state.fleet.replicas()
            if r.phase is not ReplicaPhase.STOPPED or now - r.since < SHOWN_AFTER_END
        ],
        "pools": [_pool(p, now) for p in state.pools.values()],
        "down": bool(state.down),
        "cluster_seen_age": _age(state.cluster_seen_at, now),
        "cluster_complete": state.cluster_complete,
        "cluster_detail": state.cluster_detail,
    }


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)


def _model(state: State, model: ModelState, now: float) -> dict[str, Any]:
    phases = [r.phase for r in state.fleet.replicas(model=model.spec.name)]
    known = model.demand.known(now)
    return {
        "name": model.spec.name,
        "wanted": model.target.replicas if model.target is not None else None,
        "ready": phases.count(ReplicaPhase.READY),
        "starting": phases.count(ReplicaPhase.STARTING),
        "pending": phases.count(ReplicaPhase.PENDING),
        "draining": phases.count(ReplicaPhase.DRAINING),
        "queued": model.demand.queued if known else None,
        "in_flight": model.demand.in_flight if known else None,
        "demand_age": _age(model.demand.sampled_at, now),
        "reasons": list(model.target.reasons) if model.target is not None else [],
        "blocked": model.blocked,
        "failures": model.failures,
        "last_cause": model.last_cause,
    }


def _node(node: Node, used: int, now: float) -> dict[str, Any]:
    offering = node.offering or (node.offerings[0] if node.offerings else None)
    return {
        "id": node.id,
        "pool": node.pool,
        "phase": node.phase.value,
        "since": node.since,
        "age": now - node.created,
        "gpus": node.expected_gpus,
        "gpus_used": used,
        "gpu_kind": offering.gpu_kind if offering is not None else "",
        "market": offering.market.value if offering is not None else "",
        "price_micros": offering.price_micros if offering is not None else None,
        "currency": offering.currency if offering is not None else "",
        "zone": offering.zone if offering is not None else "",
        "instance_id": node.instance_id,
        "address": node.address,
        "reason": f"{node.reason} ({node.trouble})" if node.trouble else node.reason,
        "trouble": node.trouble,
        "boot": node.boot,
        "seconds_left": (
            max(0.0, node.cut_at - now)
            if node.cut_at is not None and node.phase is NodePhase.DRAINING
            else None
        ),
        "dead_for": _age(node.dead_since, now),
        "log_tail": list(node.log_tail),
    }


def _replica(replica: Replica) -> dict[str, Any]:
    return {
        "id": replica.id,
        "incarnation": replica.incarnation,
        "model": replica.model,
        "node_id": replica.node_id,
        "phase": replica.phase.value,
        "since": replica.since,
        "load_phase": replica.load_phase,
        "url": replica.url,
        "gpus": replica.gpus,
        "cause": replica.cause,
        "log_tail": list(replica.log_tail),
    }


def _pool(pool: PoolState, now: float) -> dict[str, Any]:
    return {
        "name": pool.spec.name,
        "provider": pool.spec.provider,
        "max_nodes": pool.spec.max_nodes,
        "listed_age": _age(pool.listed_at, now),
        "last_error": pool.last_error,
        "blocked": pool.blocked if now < pool.blocked_until else "",
        "foreign": pool.foreign,
        "orphans": sorted(pool.orphans),
    }
