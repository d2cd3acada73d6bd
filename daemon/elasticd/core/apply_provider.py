"""What the providers' answers mean for nodes and pools."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.drain import drain_node, lose_node
from elasticd.core.events import (
    InstancesListed,
    LaunchAnswered,
    LaunchFailed,
    ListFailed,
    OfferingsListed,
    TerminateAnswered,
    TerminateFailed,
)
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NodePhase
from elasticd.core.state import Aside, PoolState, State, Step, growing_pause
from elasticd.provider import Instance, InstanceState

TERMINATE_PERIOD = 2.0
"""Seconds between two questions whether an instance that is ending has ended."""

BRAKE_SHARE = 0.2
BRAKE_SECONDS = 60.0
"""If more than this share of a pool's nodes (and at least two) vanish at once, it is probably the
list that is wrong: lists must agree for so many seconds before the nodes count as gone."""

LONE_SECONDS = 10.0
"""The same for a single node that Ray still sees alive: a list may lack a machine for a moment."""

RAY_FRESH = 30.0
"""Seconds for which a complete report of the agent speaks against a list."""


def on_offerings(state: State, event: OfferingsListed) -> None:
    """Prices and stock of a pool."""
    pool = state.pools.get(event.pool)
    if pool is not None:
        pool.offerings = event.offerings


def on_list_failed(state: State, event: ListFailed) -> None:
    """Nothing is known, so nothing changes; status tells."""
    pool = state.pools.get(event.pool)
    if pool is not None:
        pool.last_error = f"{event.what}: {event.error}: {event.message}"


def on_instances(state: State, step: Step, event: InstancesListed) -> None:
    """A complete list: adopts what is ours, notes orphans, counts absences."""
    pool = state.pools.get(event.pool)
    if pool is None:
        return
    pool.listed_at = step.now
    pool.last_error = ""
    foreign = sorted({i.ledger_id for i in event.instances if i.ledger_id} - {state.ledger_id})
    if foreign and not pool.foreign:
        step.because(
            f"pool:{event.pool}",
            f"machines of this cluster name belong to another ledger ({foreign[0]}): "
            "nothing is bought or ended here",
        )
    pool.foreign = foreign[0] if foreign else ""
    seen: set[str] = set()
    orphans: set[str] = set()
    for instance in event.instances:
        if instance.ledger_id != state.ledger_id:
            continue
        node = state.fleet.node(instance.node_id or "")
        if node is None or node.phase is NodePhase.GONE:
            orphans.add(instance.instance_id)
        else:
            seen.add(node.id)
            _see(state, step, node, instance)
    _note_orphans(pool, step.now, orphans)
    _count_absences(state, step, event, seen)


def _see(state: State, step: Step, node: Node, instance: Instance) -> None:
    state.seen[node.id] = step.now
    facts = (
        instance.instance_id,
        instance.address or node.address,
        instance.offering or node.offering,
    )
    known = node
    if (*facts, True, None) != (
        *(node.instance_id, node.address, node.offering, node.listed, node.unseen_since),
    ):
        known = state.fleet.put_node(
            replace(
                node,
                instance_id=facts[0],
                address=facts[1],
                offering=facts[2],
                listed=True,
                unseen_since=None,
                unseen_lists=0,
            )
        )
    if known.phase is NodePhase.REQUESTED:
        state.node_to(step, known, NodePhase.BOOTING, "the provider lists its machine")
    elif known.phase is NodePhase.READY and instance.state is InstanceState.STOPPING:
        drain_node(state, step, known, step.now, "the provider is ending its machine")


def _note_orphans(pool: PoolState, now: float, orphans: set[str]) -> None:
    pool.orphans = {
        instance_id: pool.orphans.get(instance_id, (now, None)) for instance_id in sorted(orphans)
    }


def _count_absences(state: State, step: Step, event: InstancesListed, seen: set[str]) -> None:
    pool = state.pools[event.pool]
    mine = [
        n
        for n in state.fleet.nodes()
        if n.pool == event.pool and n.phase not in {NodePhase.REQUESTED, NodePhase.GONE}
    ]
    absent = [n for n in mine if n.id not in seen and _absence_counts(n, pool, step, event.took)]
    counted = [
        state.fleet.put_node(
            replace(
                n,
                unseen_lists=n.unseen_lists + 1,
                unseen_since=step.now if n.unseen_since is None else n.unseen_since,
            )
        )
        for n in absent
    ]
    missing = [n for n in counted if n.unseen_lists >= 2 and n.phase is not NodePhase.TERMINATING]
    braked = len(missing) >= 2 and len(missing) > BRAKE_SHARE * len(mine)
    for node in counted:
        if node.phase is NodePhase.TERMINATING:
            if node.instance_id is None and node.unseen_lists >= 2:
                lose_node(state, step, node, NodePhase.GONE, node.reason)
        elif node in missing and not _doubtful(state, step, node, braked):
            lose_node(state, step, node, NodePhase.GONE, "its machine is gone")


def _absence_counts(node: Node, pool: PoolState, step: Step, took: float) -> bool:
    launched = node.launched_at if node.launched_at is not None else node.created
    if launched > step.now - took:
        return False
    return node.listed or step.now - launched >= pool.spec.visibility_grace


def _doubtful(state: State, step: Step, node: Node, braked: bool) -> bool:
    """Whether the lists should agree for longer: too many vanish at once, or Ray knows better."""
    if node.dead_since is not None:
        return False  # Ray says so too: two sources
    seen = state.cluster_seen_at
    in_ray = state.cluster_complete and seen is not None and step.now - seen < RAY_FRESH
    alive = in_ray and node.phase in {NodePhase.READY, NodePhase.DRAINING}
    wait = BRAKE_SECONDS if braked else LONE_SECONDS if alive else 0.0
    since = node.unseen_since if node.unseen_since is not None else step.now
    return wait > 0.0 and not step.due(since + wait)


def on_launch_answered(state: State, step: Step, event: LaunchAnswered) -> None:
    """A machine for a node, or, too late, for one given up: that one is ended."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is NodePhase.GONE:
        return  # the list will show an orphan, and it is ended
    known = replace(
        node,
        instance_id=event.instance.instance_id,
        address=event.instance.address or node.address,
        offering=event.instance.offering or node.offering,
        asked_at=None,
    )
    state.fleet.put_node(known)
    if known.phase is NodePhase.REQUESTED:
        state.node_to(step, known, NodePhase.BOOTING, "the provider gave a machine")
    pool = state.pools.get(known.pool)
    if pool is not None and known.offering is not None:
        pool.aside.pop(known.offering.id, None)


def on_launch_failed(state: State, step: Step, event: LaunchFailed) -> None:
    """A definite refusal ends the node; an unclear answer is asked again with the same id."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase not in {NodePhase.REQUESTED, NodePhase.TERMINATING}:
        return
    story = f"{event.error}: {event.message}"
    if not event.definite:
        pause = event.retry_after or growing_pause(node.attempts + 1, 1.0, 30.0)
        state.fleet.put_node(
            replace(node, asked_at=None, retry_at=step.now + pause, attempts=node.attempts + 1)
        )
        step.because(f"node:{node.id}", f"launch not answered clearly ({story}), asked again")
        return
    _set_aside(state, step, node, event, story)
    state.node_to(step, node, NodePhase.GONE, story)


def _set_aside(state: State, step: Step, node: Node, event: LaunchFailed, story: str) -> None:
    pool = state.pools.get(node.pool)
    if pool is None:
        return
    pool.last_error = story
    if event.error in {"AuthFailed", "BillingBlocked", "Rejected"}:
        pool.failures += 1
        pool.blocked = story
        pool.blocked_until = step.now + growing_pause(pool.failures, 60.0, 3600.0)
        return
    first = 300.0 if event.error == "QuotaExceeded" else 15.0
    for offering in node.offerings:
        before = pool.aside.get(offering.id)
        refusals = 1 + (before.refusals if before is not None else 0)
        until = step.now + growing_pause(refusals, first, 1800.0)
        pool.aside[offering.id] = Aside(until, refusals, story)


def on_terminate_answered(state: State, step: Step, event: TerminateAnswered) -> None:
    """Ending is under way, or done."""
    if event.gone:
        for pool in state.pools.values():
            pool.orphans.pop(event.instance_id, None)
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is not NodePhase.TERMINATING:
        return
    if event.gone:
        lose_node(state, step, node, NodePhase.GONE, node.reason)
    else:
        state.fleet.put_node(
            replace(node, asked_at=None, retry_at=step.now + TERMINATE_PERIOD, attempts=0)
        )


def on_terminate_failed(state: State, step: Step, event: TerminateFailed) -> None:
    """Asked again, with growing pauses, until it is gone."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is not NodePhase.TERMINATING:
        return
    pause = growing_pause(node.attempts + 1, 1.0, 60.0)
    state.fleet.put_node(
        replace(
            node,
            asked_at=None,
            retry_at=step.now + pause,
            attempts=node.attempts + 1,
            trouble=f"not ended yet: {event.error}: {event.message}",
        )
    )
    if node.attempts == 0:
        step.because(f"node:{node.id}", f"not ended yet ({event.error}: {event.message})")
