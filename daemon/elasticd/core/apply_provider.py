"""What the providers' answers mean for nodes and pools."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core import circuit
from elasticd.core.events import (
    BootLogRead,
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
from elasticd.core.reaper import count_absences, sort_machines
from elasticd.core.state import State, Step, growing_pause

TERMINATE_PERIOD = 2.0
"""Seconds between two questions whether an instance that is ending has ended."""

_ASK_LAUNCH, _ASK_TERMINATE = (1.0, 60.0), (1.0, 60.0)
"""First and longest pause, in seconds, after a call without a clear answer."""


def on_offerings(state: State, step: Step, event: OfferingsListed) -> None:
    """Prices and stock of a pool."""
    pool = state.pools.get(event.pool)
    if pool is not None:
        pool.offerings = event.offerings
        circuit.forget_refusals(pool, step.now)
        circuit.listed(pool, step, "offerings")


def on_list_failed(state: State, step: Step, event: ListFailed) -> None:
    """Nothing is known, so nothing changes; status tells."""
    pool = state.pools.get(event.pool)
    if pool is not None:
        circuit.list_failed(pool, step, event.what, event.error, event.message)


def on_instances(state: State, step: Step, event: InstancesListed) -> None:
    """A complete list: adopts what is ours, notes orphans, counts absences."""
    pool = state.pools.get(event.pool)
    if pool is None:
        return
    pool.listed_at, pool.listed_from = step.now, step.now - event.took
    if pool.first_listed_at is None:
        pool.first_listed_at = step.now
    circuit.listed(pool, step, "instances")
    seen = sort_machines(state, step, pool, event)
    count_absences(state, step, pool, event, seen)


def on_launch_answered(state: State, step: Step, event: LaunchAnswered) -> None:
    """A machine for a node, or, too late, for one given up: that one is ended."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is NodePhase.GONE:
        return  # the list will show an orphan, and it is ended
    pool = state.pools.get(node.pool)
    if pool is not None:
        pool.unclear = 0
        circuit.launch_worked(pool, step, node, event.instance.offering)
    if node.phase in {NodePhase.READY, NodePhase.DRAINING} and node.instance_id is not None:
        # It has a machine: if this is another one, the list will show an orphan.
        state.fleet.put_node(replace(node, launching=False))
        return
    known = replace(
        node,
        instance_id=_instance_of(node, event),
        address=event.instance.address or node.address,
        offering=event.instance.offering or node.offering,
        asked_at=None,
        launching=False,
    )
    state.fleet.put_node(known)
    if known.phase is NodePhase.REQUESTED:
        state.node_to(step, known, NodePhase.BOOTING, "the provider gave a machine")


def _instance_of(node: Node, event: LaunchAnswered) -> str:
    """One that is ending keeps the machine it is asked to end."""
    ending = node.phase is NodePhase.TERMINATING and node.instance_id is not None
    return node.instance_id if ending and node.instance_id else event.instance.instance_id


def on_launch_failed(state: State, step: Step, event: LaunchFailed) -> None:
    """A definite refusal ends the node; an unclear answer is asked again with the same id."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is NodePhase.GONE:
        return
    if node.phase not in {NodePhase.REQUESTED, NodePhase.TERMINATING}:
        state.fleet.put_node(replace(node, launching=False))  # a list has shown its machine
        return
    pool = state.pools.get(node.pool)
    story = f"{event.error}: {event.message}"
    if event.definite:
        if pool is not None:
            circuit.launch_refused(pool, step, node, event)
        _end_unlaunched(state, step, node, story)
        return
    if pool is not None and event.error != "LedgerWriteFailed":
        circuit.unclear(pool, step, event.error, f"launch: {story}")
    pause = event.retry_after or growing_pause(node.attempts + 1, *_ASK_LAUNCH)
    state.fleet.put_node(
        replace(
            node,
            asked_at=None,
            retry_at=step.now + pause,
            attempts=node.attempts + 1,
            launching=False,
            # The provider may have made a machine until now: its list may lag from here.
            launched_at=step.now,
            trouble=f"launch not answered clearly: {story}",
        )
    )
    if node.attempts == 0:
        step.because(f"node:{node.id}", f"launch not answered clearly ({story}), asked again")


def _end_unlaunched(state: State, step: Step, node: Node, story: str) -> None:
    """No machine comes of this call; one of an earlier call without an answer still may."""
    if node.instance_id is not None:
        state.fleet.put_node(replace(node, asked_at=None, launching=False))
    elif node.phase is NodePhase.REQUESTED and node.attempts:
        node = state.fleet.put_node(replace(node, launching=False))
        why = f"{story}; an earlier call had no answer, so its machine may still come"
        state.node_to(step, node, NodePhase.TERMINATING, why)
    elif node.phase is NodePhase.REQUESTED:
        state.node_to(step, node, NodePhase.GONE, story)
    else:
        state.fleet.put_node(replace(node, launching=False))


def on_terminate_answered(state: State, step: Step, event: TerminateAnswered) -> None:
    """Ending is under way, or done."""
    node = state.fleet.node(event.node_id)
    if node is None or node.phase is not NodePhase.TERMINATING:
        return
    pool_of_node = state.pools.get(node.pool)
    if pool_of_node is not None:
        pool_of_node.unclear = 0
    if node.instance_id != event.instance_id:
        state.fleet.put_node(replace(node, asked_at=None))  # it has another machine by now
    elif event.gone:
        state.fleet.put_node(
            replace(node, asked_at=None, not_found_at=step.now, attempts=0, trouble="")
        )
    else:
        state.fleet.put_node(
            replace(
                node, asked_at=None, retry_at=step.now + TERMINATE_PERIOD, attempts=0, trouble=""
            )
        )


def on_terminate_failed(state: State, step: Step, event: TerminateFailed) -> None:
    """Asked again, with growing pauses, until it is gone."""
    node = state.fleet.node(event.node_id)
    pool = state.pools.get(node.pool) if node is not None else None
    if pool is not None and event.error in {"Unavailable", "RateLimited"}:
        circuit.unclear(pool, step, event.error, f"terminate: {event.error}: {event.message}")
    if node is None or node.phase is not NodePhase.TERMINATING:
        return
    pause = growing_pause(node.attempts + 1, *_ASK_TERMINATE)
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


def on_boot_log(state: State, event: BootLogRead) -> None:
    """What a machine that failed had printed; what its watcher told is nearer to the cause."""
    node = state.fleet.node(event.node_id)
    if node is not None and event.lines and not node.log_tail:
        state.fleet.put_node(replace(node, log_tail=event.lines))
