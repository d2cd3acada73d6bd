"""What the agent and the gateway report, and what it means for nodes and replicas."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.actions import ReadBootLog, StopReplica
from elasticd.core.circuit import boot_failed, boot_worked, versions_differ
from elasticd.core.drain import fail_replica, lose_node, note_loss
from elasticd.core.events import (
    ClusterObserved,
    EndpointBroken,
    NodeSeen,
    ReplicaOrderFailed,
    ReplicaOrderTaken,
    ReplicaSeen,
)
from elasticd.core.failures import blame_node, count_failed_start
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import LIVE, NodePhase, ReplicaPhase
from elasticd.core.notices import on_machines_own
from elasticd.core.state import State, Step

REOPEN_AFTER = 1.5
"""Seconds after a broken connection before a good health report opens the endpoint again: the agent
asks every second, so the report is of an engine that was asked since."""

STANDSTILL = 5.0
"""Seconds in which an engine has had requests and nothing moved, after which it is not taken for
healthy, whatever its health check says. Most replicas are closed for being silent before that."""

SILENT_AFTER = 15.0
"""Seconds without an answer to a health check after which an engine gets no requests: a busy one
answers late, and has no less to do."""

VANISHED_AFTER = 15.0
"""Seconds after an order was taken before absence from a complete report says anything."""

STOP_AGAIN = 60.0
"""Seconds after a stop was taken from which a replica that still runs is stopped again."""

ABSENT_FOR = 3.0
"""Seconds in which complete reports must agree that a replica is not there: a head that has just
come back may not know of everything at once."""

WAITING_FOR_GPUS = "waiting for GPUs"
"""How the watcher's boot phase begins while its machine does not show the GPUs it should have."""

STRAY_PERIOD = 15.0
"""Seconds between two orders to stop a replica that should not be there."""


def on_cluster(state: State, step: Step, event: ClusterObserved) -> None:
    """One report of the agent; only with `complete` does absence say anything."""
    state.cluster_seen_at = step.now
    state.agent_away_since = None
    state.cluster_complete = event.complete
    state.cluster_detail = event.detail
    for seen in event.nodes:
        node = state.fleet.node(seen.node_id)
        if node is not None:
            if seen.alive is not None:
                state.seen[node.id] = step.now
            _see_node(state, step, node, seen)
            on_machines_own(state, step, seen)
    shown: set[str] = set()
    for report in event.replicas:
        replica = state.fleet.replica(report.replica_id)
        if replica is not None and replica.incarnation == report.incarnation:
            shown.add(replica.id)
            if replica.phase in LIVE:
                _see_replica(state, step, replica, report)
                continue
        if report.phase in {"fetching", "starting", "ready"}:
            _fence(state, step, report)
    if event.complete:
        _absent_replicas(state, step, shown)
        _absent_nodes(state, step, {n.node_id for n in event.nodes})


def _see_node(state: State, step: Step, node: Node, seen: NodeSeen) -> None:
    if node.phase not in {NodePhase.BOOTING, NodePhase.READY, NodePhase.DRAINING}:
        return
    dead = node.dead_since
    if seen.alive is not None:
        dead = None if seen.alive else (dead if dead is not None else step.now)
    if dead is not None and node.dead_since is None and node.phase is not NodePhase.BOOTING:
        blame_node(state, step, node.id)
    booting = node.phase is NodePhase.BOOTING
    facts = (
        seen.boot or node.boot,
        seen.log_tail or node.log_tail,
        seen.gpus if seen.alive else node.gpus,
        None if booting else dead,
        _gpuless_since(node, seen, step.now) if booting else None,
        seen.held,
    )
    known = (node.boot, node.log_tail, node.gpus, node.dead_since, node.gpuless_since, node.held)
    if facts != known:
        boot, tail, gpus, dead, gpuless, held = facts
        node = state.fleet.put_node(
            replace(
                node,
                boot=boot,
                log_tail=tail,
                gpus=gpus,
                dead_since=dead,
                gpuless_since=gpuless,
                held=held,
            )
        )
    if booting:
        _continue_boot(state, step, node, seen)


def _continue_boot(state: State, step: Step, node: Node, seen: NodeSeen) -> None:
    if seen.mismatch:
        fail_boot(state, step, node, f"versions differ: {seen.mismatch}", seen.mismatch)
    elif seen.boot.startswith("failed"):
        fail_boot(state, step, node, f"boot {seen.boot}")
    elif seen.alive and seen.gpus >= _needed_gpus(node) and node.address is not None:
        offering = node.offering
        if offering is not None:
            state.took(f"boot:{node.pool}/{offering.machine_type}", step.now - node.created)
        state.node_to(
            step,
            node,
            NodePhase.READY,
            f"joined Ray, {seen.gpus} GPU{'s' * (seen.gpus != 1)}",
            idle_since=step.now,
            gpuless_since=None,
        )
        pool = state.pools.get(node.pool)
        if pool is not None:
            boot_worked(pool)


def _needed_gpus(node: Node) -> int:
    return node.offering.gpu_count if node.offering is not None else 1


def _gpuless_since(node: Node, seen: NodeSeen, now: float) -> float | None:
    """Up, but without its GPUs: in Ray with too few, or still waiting for them before it joins."""
    joined = seen.alive and seen.gpus < _needed_gpus(node)
    if joined or seen.boot.startswith(WAITING_FOR_GPUS):
        return now if node.gpuless_since is None else node.gpuless_since
    return None


def fail_boot(state: State, step: Step, node: Node, why: str, mismatch: str = "") -> None:
    """A machine that did not become a node: given back, and the pool pauses for a while."""
    if node.instance_id is not None and not node.log_tail:
        step.act(ReadBootLog(node.id, node.pool, node.instance_id))
    lose_node(state, step, node, NodePhase.TERMINATING, why)
    pool = state.pools.get(node.pool)
    if pool is None:
        return
    if mismatch:
        versions_differ(pool, step, node, mismatch)
    else:
        boot_failed(pool, step, node, why)


def _see_replica(state: State, step: Step, replica: Replica, seen: ReplicaSeen) -> None:
    if replica.absent_since is not None:
        replica = state.fleet.put_replica(replace(replica, absent_since=None))
    if seen.unordered and replica.order == "start" and replica.taken:
        # An agent died between making the actor and telling it what to run.
        replica = state.fleet.put_replica(replace(replica, taken=False, asked_at=None))
    if seen.phase == "unknown":
        return
    if not seen.unordered:
        replica = _note(state, replica, seen)
    state.seen[replica.id] = step.now
    if seen.phase != "stopped" and _outlives_its_stop(step, replica):
        # As by a start that came late, after the stop.
        step.because(f"replica:{replica.id}", "still runs after its stop: asked again")
        state.fleet.put_replica(replace(replica, taken=False, asked_at=None))
        return
    if seen.phase == "stopped":
        end_replica(state, step, replica, replica.cause or seen.error or "engine ended")
    elif replica.phase is ReplicaPhase.STARTING:
        _continue_start(state, step, replica, seen)
    elif replica.phase is ReplicaPhase.READY:
        _check_health(state, step, replica, seen)


def _outlives_its_stop(step: Step, replica: Replica) -> bool:
    if replica.order != "stop" or not replica.taken or replica.asked_at is None:
        return False
    return step.due(replica.asked_at + STOP_AGAIN)


def _note(state: State, replica: Replica, seen: ReplicaSeen) -> Replica:
    """Takes over what the report says beside the phase."""
    facts = (
        seen.url or replica.url,
        seen.load_phase or replica.load_phase,
        seen.log_tail or replica.log_tail,
        replica.taken or replica.order == "start",
    )
    if facts == (replica.url, replica.load_phase, replica.log_tail, replica.taken):
        return replica
    url, load_phase, tail, taken = facts
    return state.fleet.put_replica(
        replace(replica, url=url, load_phase=load_phase, log_tail=tail, taken=taken)
    )


def _continue_start(state: State, step: Step, replica: Replica, seen: ReplicaSeen) -> None:
    if seen.phase == "fetching":
        if not replica.fetching:
            state.fleet.put_replica(replace(replica, fetching=True, loading_since=None))
        return
    model = state.models.get(replica.model)
    current = model if model is not None and model.spec.spec_hash == replica.spec_hash else None
    if replica.fetching and current is not None:
        state.took(f"fetch:{replica.model}", step.now - replica.since)
        _remember_weights(state, replica.node_id, current.spec.weights)
    if replica.loading_since is None:
        replica = state.fleet.put_replica(replace(replica, fetching=False, loading_since=step.now))
    if seen.phase != "ready" or not seen.url:
        return
    began = replica.since if replica.loading_since is None else replica.loading_since
    state.took(f"start:{replica.model}", step.now - began)
    state.replica_to(
        step, replica, ReplicaPhase.READY, "engine healthy", ready_at=step.now, broken_at=None
    )
    if current is not None:
        current.retry_at = step.now  # the next one may try; the row of failures ends a while later
        _remember_weights(state, replica.node_id, current.spec.weights)


def _remember_weights(state: State, node_id: str, weights: str) -> None:
    node = state.fleet.node(node_id)
    if node is not None and weights and weights not in node.weights:
        state.fleet.put_node(replace(node, weights=(*node.weights, weights)))


def _check_health(state: State, step: Step, replica: Replica, seen: ReplicaSeen) -> None:
    model = state.models.get(replica.model)
    limit = model.spec.stall_timeout if model is not None else 120.0
    if seen.stalled_for is not None and seen.stalled_for > limit:
        fail_replica(state, step, replica, f"stalled: no token for {seen.stalled_for:.0f} s")
        return
    broken = replica.broken_at
    silent = not seen.answers and (seen.stalled_for or 0.0) >= SILENT_AFTER
    if silent and broken is None:
        state.fleet.put_replica(replace(replica, broken_at=step.now))
        step.because(f"replica:{replica.id}", "its engine does not answer: endpoint closed")
        return
    moves = seen.stalled_for is None or seen.stalled_for < STANDSTILL
    healthy = seen.phase == "ready" and moves and seen.answers
    if broken is not None and healthy and step.now - broken >= REOPEN_AFTER:
        state.fleet.put_replica(replace(replica, broken_at=None))
        step.because(f"replica:{replica.id}", "healthy again, endpoint open")


def end_replica(state: State, step: Step, replica: Replica, cause: str) -> None:
    """A replica whose end is confirmed."""
    if replica.phase is not ReplicaPhase.DRAINING:
        count_failed_start(state, step, replica, cause)
        note_loss(state, replica, cause)
    state.replica_to(step, replica, ReplicaPhase.STOPPED, cause, cause=cause)


def _fence(state: State, step: Step, report: ReplicaSeen) -> None:
    """A replica that should not be there (ended, or of another life) is taken down.

    What another ledger left running on its own machine is not ours to end.
    """
    if not state.minted(report.replica_id) and state.fleet.node(report.node_id) is None:
        return
    last = state.strays.get(report.replica_id)
    if last is not None and step.now - last < STRAY_PERIOD:
        return
    state.strays[report.replica_id] = step.now
    step.act(StopReplica(report.replica_id, report.incarnation, 0.0))
    step.because(f"replica:{report.replica_id}", "runs but should not: taken down")


def _absent_replicas(state: State, step: Step, shown: set[str]) -> None:
    for replica in state.fleet.replicas(LIVE):
        if replica.id in shown or replica.phase is ReplicaPhase.PENDING or not replica.taken:
            continue
        asked = replica.asked_at if replica.asked_at is not None else replica.since
        if replica.order != "stop" and not step.due(asked + VANISHED_AFTER):
            continue
        if replica.absent_since is None:
            replica = state.fleet.put_replica(replace(replica, absent_since=step.now))
        absent = replica.absent_since if replica.absent_since is not None else step.now
        if replica.order == "stop" or step.due(absent + ABSENT_FOR):
            end_replica(state, step, replica, replica.cause or "its actor is gone")


def _absent_nodes(state: State, step: Step, shown: set[str]) -> None:
    for node in state.fleet.nodes({NodePhase.READY, NodePhase.DRAINING}):
        if node.id not in shown and node.dead_since is None:
            blame_node(state, step, node.id)
            state.fleet.put_node(replace(node, dead_since=step.now))


def on_order_failed(state: State, step: Step, event: ReplicaOrderFailed) -> None:
    """An order that was refused ends the replica; one that did not arrive is given again."""
    replica = state.fleet.replica(event.replica_id)
    if replica is None or replica.incarnation != event.incarnation or replica.phase not in LIVE:
        return
    if replica.order != event.order:
        return
    if event.definite and event.order == "start":
        end_replica(state, step, replica, f"start refused: {event.message}")
    else:
        state.fleet.put_replica(
            replace(replica, taken=False, asked_at=None, retry_at=step.now + 2.0)
        )


def on_order_taken(state: State, step: Step, event: ReplicaOrderTaken) -> None:
    """The agent has the order; the rest is in its reports."""
    replica = state.fleet.replica(event.replica_id)
    if replica is None or replica.incarnation != event.incarnation or replica.phase not in LIVE:
        return
    if replica.order == event.order:
        state.fleet.put_replica(replace(replica, taken=True, asked_at=step.now))


def on_endpoint_broken(state: State, step: Step, event: EndpointBroken) -> None:
    """Closes the endpoint until the agent reports it healthy; proves no death."""
    replica = state.fleet.replica(event.replica_id)
    if replica is None or replica.incarnation != event.incarnation:
        return
    if replica.phase is ReplicaPhase.READY and replica.broken_at is None:
        state.fleet.put_replica(replace(replica, broken_at=step.now))
        step.because(f"replica:{replica.id}", f"endpoint closed: {event.message}")
