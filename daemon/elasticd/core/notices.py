"""What is heard of a machine's end, from whomever: one way in, one drain for each node.

Providers tell of notices and of their end as events. A machine's own watcher tells what holds, all
of it again and again, so that nothing is missed while nobody listened. A repeat changes nothing,
the earliest end wins, and the last notice withdrawn puts the node back.

A rebalance is a hint: the machine is likelier to go than others, some time, or never. Its pool says
what to do. `drain` takes its node out, once it has served for a while. `replace_first` counts the
node's replicas no more, so that others are started, while they serve on; the node drains when
nothing is lost by it.
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.drain import take_out, withdraw
from elasticd.core.events import NodeSeen, NoticeArrived, NoticeSeen, NoticeTakenBack
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.records import Hint
from elasticd.core.state import State, Step

REBALANCE = "rebalance"
IGNORE, REPLACE_FIRST, DRAIN = "ignore", "replace_first", "drain"
_ACTING = (REPLACE_FIRST, DRAIN)

MACHINES_OWN = "machine:"
"""How the ids of notices begin that a machine heard itself."""

UNHURRIED = 1800.0
"""Seconds for a drain that nobody has set an end for."""

HAND_OVER = 120.0
"""Seconds before the end of a hint that has one at which its node drains, replaced or not."""

PROVEN = 600.0
"""Seconds a node must have served until a hint has it replaced or drained: where all machines of a
kind get one at once, each replacement would go before it has been of any use."""

_HEARING = frozenset({NodePhase.BOOTING, NodePhase.READY, NodePhase.DRAINING})


def on_notice(state: State, step: Step, event: NoticeArrived) -> None:
    """A provider says that an instance will go; of one that nobody knows it means nothing."""
    notice = NoticeSeen(event.notice_id, event.kind, event.seconds_left)
    for node in state.fleet.nodes(_HEARING):
        if node.pool == event.pool and node.instance_id == event.instance_id:
            _hear(state, step, node, notice)


def on_notice_taken_back(state: State, step: Step, event: NoticeTakenBack) -> None:
    """A provider takes it back."""
    for node in state.fleet.nodes(_HEARING):
        if node.pool == event.pool:
            _take_back(state, step, node, event.notice_id)


def on_machines_own(state: State, step: Step, seen: NodeSeen) -> None:
    """What a machine itself hears: what it no longer hears is over, if it has heard all."""
    node = state.fleet.node(seen.node_id)
    if node is None or not (seen.notices or seen.notices_complete):
        return
    told = [replace(n, notice_id=MACHINES_OWN + n.notice_id) for n in seen.notices]
    for notice in told:
        if node is not None and node.phase in _HEARING:
            _hear(state, step, node, notice)
        node = state.fleet.node(seen.node_id)
    if node is None or not seen.notices_complete:
        return
    hold = {notice.notice_id for notice in told}
    for notice_id in (*node.notices, *(hint.notice_id for hint in node.hints)):
        node = state.fleet.node(seen.node_id)
        if node is not None and notice_id.startswith(MACHINES_OWN) and notice_id not in hold:
            _take_back(state, step, node, notice_id)


def follow_hints(state: State, step: Step) -> None:
    """Drains the nodes whose hints ask for it, one after the other."""
    if state.down:
        return
    for node in state.fleet.nodes({NodePhase.BOOTING, NodePhase.READY}):
        if not node.hints:
            continue
        policy = _policy(state, node)
        ends = [hint.ends_at for hint in node.hints if hint.ends_at is not None]
        ends_at = min(ends, default=step.now + UNHURRIED)
        if policy == DRAIN and _is_proven(step, node):
            _follow(state, step, node, ends_at, "rebalance hint")
        elif policy in _ACTING and ends and step.due(ends_at - HAND_OVER):
            _follow(state, step, node, ends_at, "rebalance hint, its end is near")
        elif is_leaving(state, step, node) and _is_replaced(state, node):
            ends_at = min(ends_at, step.now + _time_to_finish(state, node))
            _follow(state, step, node, ends_at, "rebalance hint, replaced")


def leaving(state: State, step: Step) -> frozenset[str]:
    """Nodes that serve on until they are replaced: nothing is put there, and what is there does
    not count."""
    ready = state.fleet.nodes({NodePhase.READY})
    return frozenset(n.id for n in ready if n.hints and is_leaving(state, step, n))


def is_leaving(state: State, step: Step, node: Node) -> bool:
    """Whether the node is to be replaced before it drains."""
    if not node.hints or node.phase is not NodePhase.READY:
        return False
    return _policy(state, node) == REPLACE_FIRST and _is_proven(step, node)


def _is_proven(step: Step, node: Node) -> bool:
    return node.phase is NodePhase.READY and step.due(node.since + PROVEN)


def _hear(state: State, step: Step, node: Node, notice: NoticeSeen) -> None:
    if notice.notice_id in node.notices or any(
        hint.notice_id == notice.notice_id for hint in node.hints
    ):
        return
    left = notice.seconds_left
    if notice.kind != REBALANCE:
        seconds = 0.0 if left is None else left
        why = f"{notice.kind} notice of {seconds:.0f} s"
        take_out(state, step, node, notice.notice_id, seconds, why)
        return
    hint = Hint(notice.notice_id, None if left is None else step.now + left)
    node = state.fleet.put_node(replace(node, hints=(*node.hints, hint)))
    step.because(f"node:{node.id}", told_hint(state, node))


_ANSWERS = {
    IGNORE: "ignored, as its pool says",
    REPLACE_FIRST: "serves on until it is replaced",
    DRAIN: f"drains, as its pool says, once it has served {PROVEN / 60:.0f} minutes",
}


def told_hint(state: State, node: Node) -> str:
    """What becomes of a node with a hint, for people; empty without one."""
    return f"rebalance hint: {_ANSWERS[_policy(state, node)]}" if node.hints else ""


def _take_back(state: State, step: Step, node: Node, notice_id: str) -> None:
    left = tuple(hint for hint in node.hints if hint.notice_id != notice_id)
    if len(left) < len(node.hints):
        node = state.fleet.put_node(replace(node, hints=left))
        step.because(f"node:{node.id}", "rebalance hint withdrawn")
    if notice_id in node.notices:
        withdraw(state, step, node, notice_id, "notice withdrawn")


def _policy(state: State, node: Node) -> str:
    pool = state.pools.get(node.pool)
    return pool.spec.rebalance if pool is not None else IGNORE


def _follow(state: State, step: Step, node: Node, ends_at: float, why: str) -> None:
    """From now on the hints are notices: withdrawn, they put the node back."""
    ids = [hint.notice_id for hint in node.hints]
    notices = tuple(dict.fromkeys((*node.notices, *ids)))
    node = state.fleet.put_node(replace(node, hints=(), notices=notices))
    take_out(state, step, node, ids[0], ends_at - step.now, why)


def _is_replaced(state: State, node: Node) -> bool:
    """Whether each model on it has all the ready replicas that it should have elsewhere."""
    for name in sorted({replica.model for replica in state.fleet.live_on(node.id)}):
        model = state.models.get(name)
        if model is None:
            continue
        ready = sum(
            r.broken_at is None and r.node_id != node.id
            for r in state.fleet.replicas({ReplicaPhase.READY}, name)
        )
        if model.target is None or ready < model.target.replicas:
            return False
    return True


def _time_to_finish(state: State, node: Node) -> float:
    models = (state.models.get(replica.model) for replica in state.fleet.live_on(node.id))
    return max((m.spec.drain_timeout for m in models if m is not None), default=0.0)
