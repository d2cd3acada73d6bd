"""What people see of the core's memory, as one JSON-able value."""

from __future__ import annotations

from typing import Any

from elasticd.core.departures import departures
from elasticd.core.drain import OPERATOR
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import LIVE, NODE_COMING, NODE_PAID, NodePhase, ReplicaPhase
from elasticd.core.notices import told_hint
from elasticd.core.pool_state import Orphan, PoolState
from elasticd.core.reaper import orphan_end, unsettled
from elasticd.core.state import Hold, ModelState, State
from elasticd.core.status_money import pool_troubles, spend_summary
from elasticd.provider import Instance

STUCK_AFTER = 120.0
"""Seconds after which a machine that is ending is worth naming."""


def status(state: State, now: float) -> dict[str, Any]:
    """The whole picture at `now`; ages in seconds, `None` where a thing has never been seen."""
    used = state.fleet.occupied()
    return {
        "at": now,
        "cluster": state.cluster,
        "ledger_id": state.ledger_id,
        "models": [_model(state, m, now) for m in state.models.values()],
        "nodes": [_node(state, n, used.get(n.id, 0), now) for n in state.fleet.nodes()],
        "replicas": [_replica(state, r, now) for r in state.fleet.replicas()],
        "pools": [_pool(state, p, now) for p in state.pools.values()],
        "spend": spend_summary(state, now),
        "departures": departures(state, now),
        "unmanaged": [
            {"node_id": n.id, "pool": n.pool}
            for n in state.fleet.nodes(NODE_PAID)
            if n.pool not in state.pools
        ],
        "down": bool(state.down),
        "cluster_seen_age": _age(state.cluster_seen_at, now),
        "cluster_complete": state.cluster_complete,
        "cluster_detail": state.cluster_detail,
    }


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)


def _model(state: State, model: ModelState, now: float) -> dict[str, Any]:
    replicas = state.fleet.replicas(LIVE, model=model.spec.name)
    phases = [r.phase for r in replicas]
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
        "last_tail": list(model.last_tail),
        "failed": model.failed,
        "unresolved": model.spec.unresolved,
        "spec_hash": model.spec.spec_hash,
        "min_replicas": model.spec.scaling.min_replicas,
        "max_replicas": model.spec.scaling.max_replicas,
        "pools": list(model.spec.pools),
        "outdated": sum(r.spec_hash != model.spec.spec_hash for r in replicas),
        "hold": _hold(model.hold, now),
        "lost": model.lost,
    }


def _hold(hold: Hold | None, now: float) -> dict[str, Any] | None:
    if hold is None:
        return None
    left = None if hold.until is None else max(0.0, hold.until - now)
    return {"replicas": hold.replicas, "seconds_left": left, "by": hold.by}


def _node(state: State, node: Node, used: int, now: float) -> dict[str, Any]:
    offering = node.offering or (node.offerings[0] if node.offerings else None)
    return {
        "id": node.id,
        "pool": node.pool,
        "phase": node.phase.value,
        "since": node.since,
        "age": now - node.created,
        "phase_age": now - node.since,
        "ended_age": now - node.since if node.phase is NodePhase.GONE else None,
        "last_seen_age": _age(state.seen.get(node.id), now),
        "usual": _usual_boot(state, node),
        "held": list(node.held),
        "hint": told_hint(state, node),
        "weights": list(node.weights),
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
        "drain_asked": OPERATOR in node.notices,
        "log_tail": list(node.log_tail),
    }


def _replica(state: State, replica: Replica, now: float) -> dict[str, Any]:
    return {
        "id": replica.id,
        "incarnation": replica.incarnation,
        "model": replica.model,
        "node_id": replica.node_id,
        "phase": replica.phase.value,
        "since": replica.since,
        "age": now - replica.created,
        "phase_age": now - _phase_since(replica),
        "ended_age": now - replica.since if replica.phase is ReplicaPhase.STOPPED else None,
        "last_seen_age": _age(state.seen.get(replica.id), now),
        "usual": _usual_start(state, replica),
        "spec_hash": replica.spec_hash,
        "load_phase": replica.load_phase,
        "closed_for": _age(replica.broken_at, now) if replica.phase is ReplicaPhase.READY else None,
        "waits_for": _waits_for(state, replica),
        "url": replica.url,
        "gpus": replica.gpus,
        "cause": replica.cause,
        "log_tail": list(replica.log_tail),
    }


def _phase_since(replica: Replica) -> float:
    """A start is counted from when its engine loads, once its weights are there."""
    if replica.phase is ReplicaPhase.STARTING and replica.loading_since is not None:
        return replica.loading_since
    return replica.since


def _waits_for(state: State, replica: Replica) -> str:
    """Of one that is not started, what it waits for."""
    if replica.phase is not ReplicaPhase.PENDING:
        return ""
    model = state.models.get(replica.model)
    if model is not None and model.failed:
        return "not started: its model counts as failed"
    if model is not None and model.failures and model.blocked:
        return model.blocked
    return "waits for a node"


def _usual_boot(state: State, node: Node) -> float | None:
    """Seconds from the order to READY, as measured on machines of this type."""
    offering = node.offering or (node.offerings[0] if node.offerings else None)
    if node.phase not in NODE_COMING or offering is None:
        return None
    return state.usual.get(f"boot:{node.pool}/{offering.machine_type}")


def _usual_start(state: State, replica: Replica) -> float | None:
    if replica.phase is not ReplicaPhase.STARTING:
        return None
    return state.usual.get(f"{'fetch' if replica.fetching else 'start'}:{replica.model}")


def _stuck(state: State, pool: PoolState, now: float) -> list[str]:
    """Machines that do not end although they were told to: each still counts and may still cost."""
    return [
        f"{n.id} has been ending for {now - n.since:.0f} s" + (f" ({n.trouble})" * bool(n.trouble))
        for n in state.fleet.nodes({NodePhase.TERMINATING})
        if n.pool == pool.spec.name and now - n.since >= STUCK_AFTER
    ]


def _pool(state: State, pool: PoolState, now: float) -> dict[str, Any]:
    return {
        "name": pool.spec.name,
        "provider": pool.spec.provider,
        "max_nodes": pool.spec.max_nodes,
        "listed_age": _age(pool.listed_at, now),
        "unsettled": unsettled(state, pool),
        "last_error": pool.last_error,
        "boot_failures": pool.boot_failures,
        "troubles": pool_troubles(state, pool, now),
        "aside": [
            {
                "offering": name,
                "kind": a.kind,
                "why": a.why,
                "seconds_left": max(0.0, a.until - now),
            }
            for name, a in sorted(pool.aside.items())
        ],
        "foreign": pool.foreign,
        "foreign_machines": [_foreign(i, now) for i in pool.foreign_machines.values()],
        "orphans": [_orphan(state, pool, o, now) for o in pool.orphans.values()],
        "adopted": sorted(state.adopted),
        "stuck": _stuck(state, pool, now),
    }


def _orphan(state: State, pool: PoolState, orphan: Orphan, now: float) -> dict[str, Any]:
    held = "machines of another ledger are there" if pool.foreign else ""
    if pool.in_outage:
        held = held or "the provider does not answer"
    left = None if held else max(0.0, orphan_end(state, pool, orphan) - now)
    machine, age = _machine(orphan.instance), now - orphan.since
    return {**machine, "age": age, "seconds_left": left, "held": held}


def _foreign(instance: Instance, now: float) -> dict[str, Any]:
    launched = instance.launched_at
    return {
        **_machine(instance),
        "ledger_id": instance.ledger_id,
        "age": None if launched is None else max(0.0, now - launched),
    }


def _machine(instance: Instance) -> dict[str, Any]:
    offering = instance.offering
    return {
        "instance_id": instance.instance_id,
        "node_id": instance.node_id,
        "offering": offering.id if offering is not None else None,
        "price_micros": offering.price_micros if offering is not None else None,
        "currency": offering.currency if offering is not None else None,
    }
