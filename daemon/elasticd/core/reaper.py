"""Which listed machines are ours and wanted, which nobody stands for, and which are missing.

Only machines with our ledger id, or one that people had us adopt, are ever touched. A machine that
no node stands for is ended after the pool's guard age, once two lists in a row have shown it, and
later if it is one of many: then it is probably us who are wrong.
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.actions import TerminateNode
from elasticd.core.circuit import boot_failed
from elasticd.core.drain import drain_node, lose_node
from elasticd.core.events import AdoptRequested, InstancesListed
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.pool_state import Orphan, PoolState
from elasticd.core.state import State, Step
from elasticd.provider import Instance, InstanceState

ORPHAN_PERIOD = 5.0
"""Seconds between two orders to end the same orphan."""

BRAKE_SHARE = 0.2
BRAKE_SECONDS = 60.0
"""If more than this share of a pool's nodes (and at least two) vanish or turn up at once, it is
probably us or the list: lists must agree for so many seconds before anything is ended for it."""

LONE_SECONDS = 10.0
"""The same for a single node that Ray still sees alive: a list may lack a machine for a moment."""

RIVAL = "+rival"
"""What is added to a ledger's id where another controller acts under it."""

RIVAL_SLACK = 60.0
"""Seconds after an adoption, or after a life's beginning, in which a launch of the former owner may
still come. One that an earlier life of ours began is known as a node, however late it comes."""

LONGEST_CALL = 420.0
"""Seconds after which a launch has ended, with or without a word: the shell cuts it off before."""

RAY_FRESH = 30.0
"""Seconds for which a complete report of the agent speaks against a list."""

_SERVING = frozenset({ReplicaPhase.READY, ReplicaPhase.DRAINING})


def sort_machines(state: State, step: Step, pool: PoolState, event: InstancesListed) -> set[str]:
    """Sees to every machine of a complete list; the ids of the nodes that have one."""
    known = _nodes_by_instance(state, pool)
    claims: dict[str, list[Instance]] = {}
    unclaimed: list[Instance] = []
    foreign: dict[str, Instance] = {}
    for listed in event.instances:
        instance = _by_its_owner(state, pool, listed)
        node = known.get(instance.instance_id)
        if instance.ledger_id is None:
            if node is not None:  # its tags do not show yet, but we know it by the launch's answer
                claims.setdefault(node.id, []).append(instance)
        elif not state.is_ours(instance.ledger_id):
            foreign[instance.instance_id] = instance
        elif (owner := _owner(state, step, pool, instance)) is not None:
            claims.setdefault(owner, []).append(instance)
        elif instance.node_id is None and node is not None:
            claims.setdefault(node.id, []).append(instance)
        elif not _of_another_pool(state, pool, instance):
            unclaimed.append(instance)
    _note_foreign(pool, step, foreign)
    for node_id, machines in claims.items():
        unclaimed += _see(state, step, node_id, machines, step.now - event.took)
    _note_orphans(pool, step, unclaimed)
    return set(claims)


def _by_its_owner(state: State, pool: PoolState, instance: Instance) -> Instance:
    """The machine, under another owner's name where a living rival is proven.

    A life that comes after ours, one before it that goes on to launch, or an adopted ledger that
    does: another controller acts under the same marks, so its machines are as foreign as any.
    """
    ledger = instance.ledger_id
    if ledger is None or state.fleet.node(instance.node_id or "") is not None:
        return instance
    if _is_a_rivals(state, pool, instance, ledger):
        return replace(instance, ledger_id=f"{ledger}{RIVAL}")
    return instance


def _is_a_rivals(state: State, pool: PoolState, instance: Instance, ledger: str) -> bool:
    if instance.instance_id in pool.foreign_machines:
        return pool.foreign_machines[instance.instance_id].ledger_id == f"{ledger}{RIVAL}"
    launched = instance.launched_at
    if ledger in state.adopted:
        return launched is not None and launched > state.adopted[ledger][1] + RIVAL_SLACK
    epoch = _epoch_of(instance.node_id)
    if epoch >= state.epoch or not epoch:
        return epoch > state.epoch
    # Clocks differ from host to host: it must also have been in no list before.
    first, now = pool.first_listed_at, pool.listed_at
    came_late = first is not None and now is not None and now - first > pool.spec.visibility_grace
    told_late = launched is None or state.began is None or launched > state.began + RIVAL_SLACK
    return came_late and told_late and instance.instance_id not in pool.orphans


def _epoch_of(node_id: str | None) -> int:
    """The life in which a node id was minted; 0 where it does not say."""
    parts = (node_id or "").split("-")
    return int(parts[2]) if len(parts) == 4 and parts[2].isdecimal() else 0


def _nodes_by_instance(state: State, pool: PoolState) -> dict[str, Node]:
    return {
        n.instance_id: n
        for n in state.fleet.nodes()
        if n.pool == pool.spec.name and n.instance_id and n.phase is not NodePhase.GONE
    }


def _owner(state: State, step: Step, pool: PoolState, instance: Instance) -> str | None:
    """The living node of this pool that the machine was rented for."""
    node = state.fleet.node(instance.node_id or "")
    if node is None:
        return _adopt(state, step, pool, instance)
    mine = node.pool == pool.spec.name and node.phase is not NodePhase.GONE
    return node.id if mine else None


def _of_another_pool(state: State, pool: PoolState, instance: Instance) -> bool:
    """Two pools of one account may see the same machines: each sees to its own."""
    node = state.fleet.node(instance.node_id or "")
    return (
        node is not None
        and node.pool != pool.spec.name
        and node.phase is not NodePhase.GONE
        and node.instance_id in {None, instance.instance_id}
    )


def _adopt(state: State, step: Step, pool: PoolState, instance: Instance) -> str | None:
    """A machine of an adopted ledger becomes a node, and has the usual time to join."""
    if instance.ledger_id == state.ledger_id or instance.node_id is None or state.down:
        return None
    node = Node(
        id=instance.node_id,
        pool=pool.spec.name,
        phase=NodePhase.BOOTING,
        created=step.now,
        since=step.now,
        offering=instance.offering,
        instance_id=instance.instance_id,
        reason=f"adopted from ledger {instance.ledger_id}",
    )
    state.fleet.put_node(node)
    step.because(
        f"node:{node.id}", f"{node.reason}: it has its boot time to join, else it is ended"
    )
    return node.id


def on_adopt_requested(state: State, step: Step, event: AdoptRequested) -> None:
    """People say that the machines of another ledger are ours."""
    if event.ledger_id == state.ledger_id or event.ledger_id in state.adopted:
        return
    state.adopted[event.ledger_id] = (event.by, step.now)
    step.because(
        "fleet", f"machines of ledger {event.ledger_id} are ours now (adopted by {event.by})"
    )
    for pool in state.pools.values():
        for instance in pool.foreign_machines.values():
            if instance.ledger_id != event.ledger_id:
                continue
            if _owner(state, step, pool, instance) is None:
                # It counts and costs from now on, not from the next list on.
                pool.orphans[instance.instance_id] = Orphan(instance, step.now)
        kept = {k: i for k, i in pool.foreign_machines.items() if i.ledger_id != event.ledger_id}
        _note_foreign(pool, step, kept)


def _note_foreign(pool: PoolState, step: Step, foreign: dict[str, Instance]) -> None:
    owners = sorted({i.ledger_id or "" for i in foreign.values()})
    if owners and not pool.foreign:
        step.because(
            f"pool:{pool.spec.name}",
            f"machines of this cluster name belong to another ledger ({owners[0]}): "
            "nothing is bought or ended here",
        )
    pool.foreign = owners[0] if owners else ""
    pool.foreign_machines = dict(sorted(foreign.items()))


def _still(not_found_at: float | None, list_began: float) -> float | None:
    """A later list that shows the machine overrules a "not found"."""
    return not_found_at if not_found_at is not None and list_began < not_found_at else None


def _see(
    state: State, step: Step, node_id: str, machines: list[Instance], began: float
) -> list[Instance]:
    """Takes over what a list says of a node's machine; the machines that are too many."""
    node = state.fleet.node(node_id)
    if node is None:
        return machines
    known = node.instance_id
    mine = min(machines, key=lambda i: _preference(known, i))
    state.seen[node.id] = step.now
    facts = (mine.instance_id, mine.address or node.address, mine.offering or node.offering)
    if (*facts, True, None, None) != (
        node.instance_id,
        node.address,
        node.offering,
        node.listed,
        node.unseen_since,
        node.not_found_at,
    ):
        node = state.fleet.put_node(
            replace(
                node,
                instance_id=facts[0],
                address=facts[1],
                offering=facts[2],
                listed=True,
                unseen_since=None,
                unseen_lists=0,
                not_found_at=_still(node.not_found_at, began),
            )
        )
    if node.phase is NodePhase.REQUESTED:
        state.node_to(step, node, NodePhase.BOOTING, "the provider lists its machine")
    elif node.phase is NodePhase.READY and mine.state is InstanceState.STOPPING:
        drain_node(state, step, node, step.now, "the provider is ending its machine")
    return [i for i in machines if i is not mine]


def _preference(known: str | None, instance: Instance) -> tuple[bool, bool, float, str]:
    """Of two machines for one node: the one we know, one that stays, the oldest."""
    launched = instance.launched_at if instance.launched_at is not None else float(1 << 60)
    return (
        instance.instance_id != known,
        instance.state is InstanceState.STOPPING,
        launched,
        instance.instance_id,
    )


def _note_orphans(pool: PoolState, step: Step, unclaimed: list[Instance]) -> None:
    before, pool.orphans = pool.orphans, {}
    for instance in sorted(unclaimed, key=lambda i: i.instance_id):
        known = before.get(instance.instance_id)
        if known is not None:
            known = replace(known, instance=instance, lists=known.lists + 1)
        elif instance.state is not InstanceState.STOPPING:
            step.because(
                f"pool:{pool.spec.name}",
                f"{instance.instance_id} is ours and no node stands for it "
                f"({instance.node_id or 'no node in its marks'}): it will be ended",
            )
        pool.orphans[instance.instance_id] = known or Orphan(instance, step.now)


def ask_orphans(state: State, step: Step, pool: PoolState) -> None:
    """Ends what nobody stands for, when it is sure enough: asked until no list shows it."""
    if pool.foreign or pool.in_outage:
        return
    for instance_id, orphan in pool.orphans.items():
        if not step.due(orphan_end(state, pool, orphan)) or orphan.lists < 2:
            continue
        if orphan.asked_at is None or step.due(orphan.asked_at + ORPHAN_PERIOD):
            pool.orphans[instance_id] = replace(orphan, asked_at=step.now)
            step.act(TerminateNode("", pool.spec.name, instance_id))
            step.because(f"pool:{pool.spec.name}", f"ends orphan {instance_id}")


def orphan_end(state: State, pool: PoolState, orphan: Orphan) -> float:
    """When an orphan is ended at the earliest."""
    count = len(pool.orphans)
    braked = count >= 2 and count > BRAKE_SHARE * (state.fleet.paid_in(pool.spec.name) + count)
    age = max(pool.spec.guard_age, BRAKE_SECONDS) if braked and not state.down else None
    return orphan.since + (pool.spec.guard_age if age is None else age)


def count_absences(
    state: State, step: Step, pool: PoolState, event: InstancesListed, seen: set[str]
) -> None:
    """Nodes whose machine the list lacks: gone when it is sure enough."""
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
            if _ended(node, step.now - event.took):
                lose_node(state, step, node, NodePhase.GONE, node.reason)
        elif node in missing and not _doubtful(state, step, node, braked):
            if node.phase is NodePhase.BOOTING:
                # Perhaps no list ever shows it, and it costs: its end is asked for all the same.
                why = "its machine was gone before it had joined"
                boot_failed(pool, step, node, why)
                lose_node(state, step, node, NodePhase.TERMINATING, why)
            else:
                lose_node(state, step, node, NodePhase.GONE, "its machine is gone")


def _ended(node: Node, list_began: float) -> bool:
    """Whether a machine is no more: "not found" by its id, and then by a list, too.

    One that was never known by an id: by two lists.
    """
    if node.instance_id is None:
        return node.unseen_lists >= 2
    return node.not_found_at is not None and list_began >= node.not_found_at


def _absence_counts(node: Node, pool: PoolState, step: Step, took: float) -> bool:
    """Whether the list should have had its machine."""
    launched = node.launched_at if node.launched_at is not None else node.created
    if node.launching and step.now - launched < LONGEST_CALL:
        return False  # the provider may still be making it
    if launched > step.now - took:
        return False
    return node.listed or step.now - launched >= pool.spec.visibility_grace


def _doubtful(state: State, step: Step, node: Node, braked: bool) -> bool:
    """Whether the lists should agree for longer: too many vanish at once, or Ray knows better.

    What serves is never given up on the word of a list alone.
    """
    if node.dead_since is not None:
        return False  # Ray says so too: two sources
    seen = state.cluster_seen_at
    in_ray = state.cluster_complete and seen is not None and step.now - seen < RAY_FRESH
    alive = in_ray and node.phase in {NodePhase.READY, NodePhase.DRAINING}
    if alive and _serves(state, step, node):
        return True
    if not in_ray and _unbroken(state, node):
        return True  # nobody else could speak for it, and its endpoint takes requests
    wait = BRAKE_SECONDS if braked else LONE_SECONDS if alive else 0.0
    since = node.unseen_since if node.unseen_since is not None else step.now
    if wait > 0.0 and not step.due(since + wait):
        return True
    # After a break the agent's next report says whether there is still somebody there.
    broken = max((r.broken_at or 0.0 for r in state.fleet.live_on(node.id)), default=0.0)
    return alive and not step.due(broken + LONE_SECONDS)


def _serves(state: State, step: Step, node: Node) -> bool:
    """Whether a replica there has just reported to be healthy, and no connection to it broke."""
    return any(
        r.phase in _SERVING
        and r.broken_at is None
        and step.now - state.seen.get(r.id, 0.0) < RAY_FRESH
        for r in state.fleet.live_on(node.id)
    )


def _unbroken(state: State, node: Node) -> bool:
    """Whether a replica there serves as far as the gateway has said."""
    live = state.fleet.live_on(node.id)
    return any(r.phase in _SERVING and r.broken_at is None for r in live)


def unsettled(state: State, pool: PoolState) -> str:
    """Why it cannot be said yet that lists show every machine of ours there; empty: it can."""
    name, listed = pool.spec.name, pool.listed_from
    if listed is None or pool.in_outage:
        return f"a list of pool {name}"
    nodes = [n for n in state.fleet.nodes() if n.pool == name]
    ended = max((n.since for n in nodes if n.phase is NodePhase.GONE), default=0.0)
    if listed < max(ended, state.down_since):
        return f"a new list of pool {name}"
    launched = max((n.launched_at for n in nodes if n.launched_at is not None), default=0.0)
    if launched and listed < launched + pool.spec.visibility_grace:
        return f"machines of pool {name} that no list shows yet"
    return ""
