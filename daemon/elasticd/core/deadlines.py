"""What time alone brings about: limits of each phase, and asking again.

Every provider call and every order to the agent is asked from here, from what the rows say, so a
restart asks again for whatever had no answer. That is safe: both are idempotent by our ids.
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.actions import LaunchNode, StartReplica, StopReplica, TerminateNode
from elasticd.core.apply_cluster import fail_boot
from elasticd.core.drain import STOP_GRACE, fail_replica, lose_node
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.reaper import BRAKE_SECONDS, BRAKE_SHARE, ask_orphans
from elasticd.core.state import State, Step

ASK_AGAIN = 90.0
"""Seconds after which a call without any answer is asked again."""

SIGHT_AGAIN = 60.0
"""Seconds after an outage in which what was not seen meanwhile may still turn up."""

_LOSS_GRACE = 30.0
"""Seconds, where a node's pool is no longer configured."""


def pass_limits(state: State, step: Step) -> None:
    """Gives up what has taken too long."""
    for node in state.fleet.nodes({NodePhase.REQUESTED, NodePhase.BOOTING}):
        _limit_boot(state, step, node)
    _lose_dead(state, step)
    for replica in state.fleet.replicas({ReplicaPhase.STARTING}):
        _limit_start(state, step, replica)


def _lose_dead(state: State, step: Step) -> None:
    """Nodes that Ray counts as dead. Many at once are probably a head that has lost its memory:
    their providers still list them, and they get longer to join again."""
    serving = state.fleet.nodes({NodePhase.READY, NodePhase.DRAINING})
    dead = [n for n in serving if n.dead_since is not None]
    braked = len(dead) >= 2 and len(dead) > BRAKE_SHARE * len(serving)
    for node in dead:
        pool = state.pools.get(node.pool)
        grace = pool.spec.loss_grace if pool is not None else _LOSS_GRACE
        if braked and node.listed and node.unseen_since is None:
            grace = max(grace, BRAKE_SECONDS)
        since = node.dead_since if node.dead_since is not None else step.now
        if step.due(since + grace):
            lose_node(state, step, node, NodePhase.TERMINATING, f"dead in Ray for {grace:g} s")


def _limit_boot(state: State, step: Step, node: Node) -> None:
    pool = state.pools.get(node.pool)
    if pool is None or pool.in_outage:
        return  # nobody could tell us that it is up
    if node.gpuless_since is not None:
        if step.due(node.gpuless_since + pool.spec.gpu_timeout):
            wanted = node.offering.gpu_count if node.offering is not None else 1
            why = f"up, but shows {node.gpus} of {wanted} GPUs after {pool.spec.gpu_timeout:g} s"
            fail_boot(state, step, node, why)
        return
    limit = pool.spec.boot_timeout
    blind_until = 0.0 if pool.recovered_at is None else pool.recovered_at + SIGHT_AGAIN
    if step.due(max(node.created + limit, blind_until)):
        told = f", last phase {node.boot!r}" if node.boot else ""
        fail_boot(state, step, node, f"not up after {limit:g} s{told}")


def _limit_start(state: State, step: Step, replica: Replica) -> None:
    model = state.models.get(replica.model)
    told = f" ({replica.load_phase})" if replica.load_phase else ""
    if replica.fetching:
        limit = model.spec.fetch_timeout if model is not None else 0.0
        if step.due(replica.since + limit):
            fail_replica(state, step, replica, f"weights took longer than {limit:g} s{told}")
        return
    limit = model.spec.start_timeout if model is not None else 0.0
    began = replica.since if replica.loading_since is None else replica.loading_since
    if step.due(began + limit):
        fail_replica(state, step, replica, f"start took longer than {limit:g} s{told}")


def ask(state: State, step: Step) -> None:
    """Gives every order that is open and not on its way."""
    for node in state.fleet.nodes({NodePhase.REQUESTED}):
        if _may_rent(state, node) and _may_ask(step, node):
            state.fleet.put_node(
                replace(node, asked_at=step.now, launched_at=step.now, launching=True)
            )
            step.act(LaunchNode(node.id, node.pool, node.offerings))
    for node in state.fleet.nodes({NodePhase.TERMINATING}):
        _ask_terminate(state, step, node)
    for pool in state.pools.values():
        ask_orphans(state, step, pool)
    for replica in state.fleet.open_orders():
        if _may_ask(step, replica):
            _ask_replica(state, step, replica)


def _may_rent(state: State, node: Node) -> bool:
    """What was decided before another ledger's machines turned up is not rented beside them."""
    pool = state.pools.get(node.pool)
    return pool is None or not pool.foreign


def _may_ask(step: Step, subject: Node | Replica) -> bool:
    if subject.asked_at is not None:
        return step.due(subject.asked_at + ASK_AGAIN)
    return subject.retry_at is None or step.due(subject.retry_at)


def _ask_terminate(state: State, step: Step, node: Node) -> None:
    pool = state.pools.get(node.pool)
    if node.instance_id is None:
        _settle_unlaunched(state, step, node)
    elif pool is None or node.not_found_at is not None:
        return  # nobody to ask: status tells; or not found, which a list is to confirm
    elif _may_ask(step, node):
        state.fleet.put_node(replace(node, asked_at=step.now))
        step.act(TerminateNode(node.id, node.pool, node.instance_id))


def _settle_unlaunched(state: State, step: Step, node: Node) -> None:
    """Given up before any answer: gone if never asked for; else its list decides."""
    if node.launched_at is None:
        state.node_to(step, node, NodePhase.GONE, node.reason)


def _ask_replica(state: State, step: Step, replica: Replica) -> None:
    state.fleet.put_replica(replace(replica, asked_at=step.now))
    if replica.order == "stop":
        step.act(StopReplica(replica.id, replica.incarnation, STOP_GRACE))
        return
    node = state.fleet.node(replica.node_id)
    if node is not None:
        step.act(
            StartReplica(
                replica.id,
                replica.incarnation,
                replica.node_id,
                replica.model,
                replica.spec_hash,
                replica.gpus,
                node.address or "",
            )
        )
