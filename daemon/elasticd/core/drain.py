"""Taking nodes and replicas out of service: by notice, by scale-down, by loss.

A drained replica takes no new request; it is stopped when the gateway counts nothing on it any
more, or at the end of its time. A drained node goes back when its last replica has stopped.
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.demand import STALE_AFTER
from elasticd.core.events import (
    DrainRequested,
    UndrainRequested,
)
from elasticd.core.failures import blame_node, count_failed_start
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import LIVE, NodePhase, ReplicaPhase
from elasticd.core.state import State, Step

CUT_MARGIN = 2.0
"""Seconds before a node's end at which its replicas are stopped at the latest."""

LAST_WORDS = 30.0
"""Seconds before the end of a drain (at most half of it) in which a replica takes nothing new."""

SETTLE = 1.0
"""Seconds after a route is closed in which a request may still be on its way to the replica."""

CLOSING_TIME = 120.0
"""Seconds for what still runs on the nodes of a pool that is closed."""

_CAN_LEAVE = frozenset({NodePhase.BOOTING, NodePhase.READY, NodePhase.DRAINING})

STOP_GRACE = 5.0
"""Seconds an engine gets to end by itself once nothing is asked of it."""


def drain_replica(state: State, step: Step, replica: Replica, stop_at: float, why: str) -> None:
    """Closes a replica's route; one that never served, or has no place yet, stops at once."""
    if replica.phase is ReplicaPhase.PENDING:
        state.replica_to(step, replica, ReplicaPhase.STOPPED, why, cause=why)
    elif replica.phase is ReplicaPhase.STARTING:
        state.replica_to(
            step, replica, ReplicaPhase.DRAINING, why, cause=why, **_stop_order(step.now)
        )
    elif replica.phase is ReplicaPhase.READY:
        state.replica_to(step, replica, ReplicaPhase.DRAINING, why, cause=why, stop_at=stop_at)
    elif replica.stop_at is not None and stop_at < replica.stop_at:
        state.fleet.put_replica(replace(replica, stop_at=stop_at))


def fail_replica(state: State, step: Step, replica: Replica, cause: str) -> None:
    """Ends a replica that no longer works; its engine is taken down, its GPUs stay occupied."""
    if replica.phase is ReplicaPhase.PENDING:
        state.replica_to(step, replica, ReplicaPhase.STOPPED, cause, cause=cause)
    elif replica.phase is not ReplicaPhase.DRAINING:
        count_failed_start(state, step, replica, cause)
        note_loss(state, replica, cause)
        state.replica_to(
            step, replica, ReplicaPhase.DRAINING, cause, cause=cause, **_stop_order(step.now)
        )


def note_loss(state: State, replica: Replica, cause: str) -> None:
    """One that served is no more, and nobody wanted that: told until its model is whole again."""
    model = state.models.get(replica.model)
    if model is not None and replica.phase is ReplicaPhase.READY:
        model.lost = f"replica {replica.id} ended: {cause}"


def _stop_order(now: float) -> dict[str, object]:
    return {"order": "stop", "asked_at": None, "taken": False, "retry_at": None, "stop_at": now}


def drain_node(state: State, step: Step, node: Node, cut_at: float, why: str) -> None:
    """Takes a READY node out of service by `cut_at`; an earlier deadline wins."""
    if node.phase is NodePhase.READY:
        node = state.node_to(step, node, NodePhase.DRAINING, why, cut_at=cut_at)
    elif node.phase is NodePhase.DRAINING and node.cut_at is not None and cut_at < node.cut_at:
        node = state.fleet.put_node(replace(node, cut_at=cut_at))
    for replica in state.fleet.live_on(node.id):
        drain_replica(state, step, replica, max(step.now, cut_at - CUT_MARGIN), why)


def lose_node(state: State, step: Step, node: Node, phase: NodePhase, why: str) -> None:
    """A node that is gone, or given up: its replicas are no more."""
    if node.phase in {NodePhase.READY, NodePhase.DRAINING}:
        blame_node(
            state, step, node.id, lost=phase is NodePhase.GONE or node.dead_since is not None
        )
    state.node_to(step, node, phase, why)
    if phase is NodePhase.GONE:
        for replica in state.fleet.live_on(node.id):
            state.replica_to(
                step, replica, ReplicaPhase.STOPPED, f"node {node.id}: {why}", cause=why
            )
    else:
        for replica in state.fleet.live_on(node.id):
            fail_replica(state, step, replica, f"node {node.id}: {why}")


OPERATOR = "operator"
"""Stands for a notice where it was people who asked."""

CLOSED = "closed"
"""Stands for a notice where a pool may have no machine any more."""

BUDGET = "budget"
"""Stands for a notice where the caps take a node out of service."""


def on_drain_requested(state: State, step: Step, event: DrainRequested) -> None:
    """People want a node out of service; asked again with less time, the earlier end wins."""
    node = state.fleet.node(event.node_id)
    if node is not None and node.phase in _CAN_LEAVE:
        why = f"drained by {event.by}, {event.seconds:.0f} s for what still runs"
        take_out(state, step, node, OPERATOR, event.seconds, why)


def on_undrain_requested(state: State, step: Step, event: UndrainRequested) -> None:
    """People take their drain back; what the provider announced still holds."""
    node = state.fleet.node(event.node_id)
    if node is not None and OPERATOR in node.notices:
        withdraw(state, step, node, OPERATOR, f"drain taken back by {event.by}")


def take_out(state: State, step: Step, node: Node, notice: str, seconds: float, why: str) -> None:
    """Takes a node out of service within `seconds`, for as long as the notice holds."""
    notices = tuple(dict.fromkeys((*node.notices, notice)))
    node = state.fleet.put_node(replace(node, notices=notices))
    if node.phase is NodePhase.BOOTING:
        lose_node(state, step, node, NodePhase.TERMINATING, why)
    else:
        drain_node(state, step, node, step.now + max(seconds, 0.0), why)


def withdraw(state: State, step: Step, node: Node, notice: str, why: str) -> None:
    """A notice holds no more: without another one a node that still lives is put back."""
    left = tuple(n for n in node.notices if n != notice)
    node = state.fleet.put_node(replace(node, notices=left))
    if left or node.phase is not NodePhase.DRAINING:
        return
    state.node_to(step, node, NodePhase.READY, why, cut_at=None)
    for replica in state.fleet.live_on(node.id):
        if replica.phase is ReplicaPhase.DRAINING and replica.order != "stop":
            state.replica_to(step, replica, ReplicaPhase.READY, why, cause="", stop_at=None)


def close_pools(state: State, step: Step) -> None:
    """A pool of no machines takes those out of service that it has, until it may have some."""
    closed = {name for name, pool in state.pools.items() if pool.spec.max_nodes == 0}
    for node in state.fleet.nodes({NodePhase.DRAINING}):
        if CLOSED in node.notices and node.pool not in closed and not state.down:
            withdraw(state, step, node, CLOSED, f"max_nodes of {node.pool} is above 0 again")
    if not closed:
        return
    for node in state.fleet.nodes(_CAN_LEAVE | {NodePhase.REQUESTED}):
        # Also those that drain already: when their reason passes, this one still holds.
        if node.pool in closed and CLOSED not in node.notices:
            send_away(state, step, node, CLOSED, f"max_nodes of {node.pool} is 0")


def send_away(state: State, step: Step, node: Node, notice: str, why: str) -> None:
    """For reasons of our own, which may pass while it still drains; what serves nobody yet ends."""
    if node.phase is NodePhase.REQUESTED:
        lose_node(state, step, node, NodePhase.TERMINATING, why)
    else:
        take_out(state, step, node, notice, CLOSING_TIME, why)


def continue_drains(state: State, step: Step) -> None:
    """Stops drained replicas that are empty or out of time, gives back drained nodes."""
    for replica in state.fleet.replicas({ReplicaPhase.DRAINING}):
        if replica.order != "stop" and _drained(state, step, replica):
            state.fleet.put_replica(
                replace(replica, order="stop", asked_at=None, taken=False, retry_at=None)
            )
    for node in state.fleet.nodes({NodePhase.DRAINING}):
        cut = node.cut_at is not None and step.due(node.cut_at)
        if cut or not state.fleet.live_on(node.id):
            lose_node(state, step, node, NodePhase.TERMINATING, node.reason)


def serves_on(state: State, step: Step, replica: Replica) -> bool:
    """Whether a replica on a node that is to go still takes requests: there was time for a
    replacement and for what runs, and the replacement does not serve yet."""
    node = state.fleet.node(replica.node_id)
    if node is None or node.phase is not NodePhase.DRAINING or state.down:
        return False
    if CLOSED in node.notices or BUDGET in node.notices:
        return False  # our own wish, which is to hold soon
    if replica.phase is not ReplicaPhase.DRAINING or replica.order == "stop":
        return False
    start_up = _start_up(state, node, replica.model)
    if replica.stop_at is None or replica.broken_at is not None or start_up is None:
        return False
    unhurried = replica.stop_at - replica.since > start_up + LAST_WORDS
    if not unhurried or is_whole(state, replica.model):
        return False
    return not step.due(replica.stop_at - LAST_WORDS)


def _start_up(state: State, node: Node, model: str) -> float | None:
    """Seconds until a replacement on a new machine serves, as far as this was ever measured."""
    usual, offering = state.usual, node.offering
    boot = usual.get(f"boot:{node.pool}/{offering.machine_type}") if offering else None
    start = usual.get(f"start:{model}")
    if boot is None or start is None:
        return None
    # One that was started and never fetched needs no fetching: its weights are with the machines.
    return boot + usual.get(f"fetch:{model}", 0.0) + start


def is_whole(state: State, name: str) -> bool:
    """Whether a model has all the ready replicas that it should have."""
    model = state.models.get(name)
    if model is None or state.down:
        return True
    if model.target is None:
        return False
    ready = state.fleet.replicas({ReplicaPhase.READY}, name)
    return sum(r.broken_at is None for r in ready) >= model.target.replicas


def _drained(state: State, step: Step, replica: Replica) -> bool:
    if replica.stop_at is not None and step.due(replica.stop_at):
        return True
    if serves_on(state, step, replica) or _holds_the_fort(state, step, replica):
        return False
    if state.loads_at is None or step.now - state.loads_at > STALE_AFTER:
        return False
    settled = step.due(replica.since + SETTLE)
    return settled and state.loads_at > replica.since and not state.loads.get(replica.id, 0)


def surplus(replicas: list[Replica], count: int) -> list[Replica]:
    """The `count` replicas to do without: the least started first, then the youngest."""
    order = {ReplicaPhase.PENDING: 0, ReplicaPhase.STARTING: 1, ReplicaPhase.READY: 2}
    counted = [r for r in replicas if r.phase in LIVE and r.phase in order]
    counted.sort(key=lambda r: (order[r.phase], -r.created, r.id))
    return counted[: max(count, 0)]


def _holds_the_fort(state: State, step: Step, replica: Replica) -> bool:
    """The last one of its model on a node that will go: idle, it still waits for its successor.

    One that makes room on a node that stays is in its successor's way instead.
    """
    model = state.models.get(replica.model)
    node = state.fleet.node(replica.node_id)
    wanted = model is not None and model.target is not None and model.target.replicas > 0
    if not wanted or state.down or node is None or node.phase is not NodePhase.DRAINING:
        return False
    ready = state.fleet.replicas({ReplicaPhase.READY}, replica.model)
    return not any(r.broken_at is None for r in ready) and not is_late(step, replica)


def is_late(step: Step, replica: Replica) -> bool:
    """Near the end of a drain a new request waits for another replica: here it would be cut."""
    if replica.stop_at is None:
        return False
    left_for_all = min(LAST_WORDS, (replica.stop_at - replica.since) / 2)
    return step.due(replica.stop_at - left_for_all)
