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
from elasticd.core.state import PoolState, State, Step

ASK_AGAIN = 90.0
"""Seconds after which a call without any answer is asked again."""

ORPHAN_PERIOD = 5.0
"""Seconds between two orders to end the same orphan."""


def pass_limits(state: State, step: Step) -> None:
    """Gives up what has taken too long."""
    for node in state.fleet.nodes({NodePhase.REQUESTED, NodePhase.BOOTING}):
        _limit_boot(state, step, node)
    for node in state.fleet.nodes({NodePhase.READY, NodePhase.DRAINING}):
        grace = state.pools[node.pool].spec.loss_grace if node.pool in state.pools else 0.0
        if node.dead_since is not None and step.due(node.dead_since + grace):
            lose_node(state, step, node, NodePhase.TERMINATING, f"dead in Ray for {grace:g} s")
    for replica in state.fleet.replicas({ReplicaPhase.STARTING}):
        _limit_start(state, step, replica)


def _limit_boot(state: State, step: Step, node: Node) -> None:
    pool = state.pools.get(node.pool)
    if node.gpuless_since is not None and pool is not None:
        if step.due(node.gpuless_since + pool.spec.gpu_timeout):
            wanted = node.offering.gpu_count if node.offering is not None else 1
            why = f"up, but shows {node.gpus} of {wanted} GPUs after {pool.spec.gpu_timeout:g} s"
            fail_boot(state, step, node, why)
        return
    limit = pool.spec.boot_timeout if pool is not None else 0.0
    if step.due(node.created + limit):
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
        if _may_ask(step, node):
            state.fleet.put_node(replace(node, asked_at=step.now, launched_at=step.now))
            step.act(LaunchNode(node.id, node.pool, node.offerings))
    for node in state.fleet.nodes({NodePhase.TERMINATING}):
        _ask_terminate(state, step, node)
    for pool in state.pools.values():
        _ask_orphans(step, pool)
    for replica in state.fleet.open_orders():
        if _may_ask(step, replica):
            _ask_replica(state, step, replica)


def _may_ask(step: Step, subject: Node | Replica) -> bool:
    if subject.asked_at is not None:
        return step.due(subject.asked_at + ASK_AGAIN)
    return subject.retry_at is None or step.due(subject.retry_at)


def _ask_terminate(state: State, step: Step, node: Node) -> None:
    pool = state.pools.get(node.pool)
    if pool is not None and pool.foreign:
        return
    if node.instance_id is None:
        _settle_unlaunched(state, step, node)
    elif _may_ask(step, node):
        state.fleet.put_node(replace(node, asked_at=step.now))
        step.act(TerminateNode(node.id, node.pool, node.instance_id))


def _settle_unlaunched(state: State, step: Step, node: Node) -> None:
    """Given up before any answer: gone if never asked for; else its list decides."""
    if node.launched_at is None:
        state.node_to(step, node, NodePhase.GONE, node.reason)


def _ask_orphans(step: Step, pool: PoolState) -> None:
    if pool.foreign:
        return
    for instance_id, (since, asked) in pool.orphans.items():
        if step.due(since + pool.spec.guard_age) and (
            asked is None or step.due(asked + ORPHAN_PERIOD)
        ):
            pool.orphans[instance_id] = (since, step.now)
            step.act(TerminateNode("", pool.spec.name, instance_id))
            step.because(f"pool:{pool.spec.name}", f"ends orphan {instance_id}")


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
