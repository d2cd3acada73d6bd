"""Where replicas go: nodes there are, then nodes that are coming, then the cheapest that fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from elasticd.core.failures import no_start_now
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import NODE_COMING, NodePhase, ReplicaPhase
from elasticd.core.notices import leaving
from elasticd.core.purchase import buy, refusals
from elasticd.core.shapes import gpus_on, gpus_there
from elasticd.core.specs import ModelSpec
from elasticd.core.state import ModelState, State, Step


@dataclass(slots=True)
class _Room:
    """What one step may hand out: free GPUs by node id, now and later, and loads under way.

    `loads`: engines that load, by node; `fetches`: replicas that fetch weights, by node and model.
    """

    ready: dict[str, int]
    coming: dict[str, int]
    loads: Counter[str]
    fetches: Counter[tuple[str, str]]
    starting: set[str]


def place(state: State, step: Step) -> None:
    """Starts PENDING replicas where there is room; rents what is missing."""
    for model in state.models.values():
        model.blocked = model.spec.unresolved
        model.unplaced = model.no_room = False
    pending = state.fleet.replicas({ReplicaPhase.PENDING})
    if not pending:
        return
    room = _survey(state, step)
    for replica in pending:
        model_state = state.models.get(replica.model)
        if model_state is not None and replica.spec_hash == model_state.spec.spec_hash:
            _place_one(state, step, room, replica, model_state)
    for model_state in state.models.values():
        if model_state.unplaced:
            model_state.no_room = refusals(state, step, model_state.spec)[1]


def tell_what_blocks(state: State, step: Step) -> None:
    """Why replicas have no place, as things are at the end of the step."""
    unplaced = [m for m in state.models.values() if m.unplaced]
    free = _survey(state, step).ready if unplaced else {}
    for model in unplaced:
        model.blocked = refusals(state, step, model.spec)[0] + _scattered(free, model.spec)


def _survey(state: State, step: Step) -> _Room:
    used = state.fleet.occupied()
    gone_soon = leaving(state, step)
    ready = {
        n.id: n.usable_gpus - used.get(n.id, 0)
        for n in state.fleet.nodes({NodePhase.READY})
        # Whether it is lost is decided elsewhere; until then it takes nothing more.
        if n.dead_since is None and n.unseen_since is None and n.id not in gone_soon
    }
    starting = state.fleet.replicas({ReplicaPhase.STARTING})
    loads = Counter(r.node_id for r in starting if not r.fetching)
    fetches = Counter((r.node_id, r.model) for r in starting if r.fetching)
    coming = _coming(state, ready)
    free = {node_id: gpus for node_id, gpus in ready.items() if gpus > 0}
    return _Room(free, coming, loads, fetches, {r.model for r in starting})


def _coming(state: State, ready: dict[str, int]) -> dict[str, int]:
    """GPUs that need not be bought: on nodes that boot, and under engines on their way out."""
    coming = {n.id: n.expected_gpus for n in state.fleet.nodes(NODE_COMING)}
    for replica in state.fleet.replicas({ReplicaPhase.DRAINING}):
        if replica.order == "stop" and replica.node_id in ready:
            there = coming.get(replica.node_id, ready[replica.node_id])
            coming[replica.node_id] = there + replica.gpus
    return coming


def _place_one(state: State, step: Step, room: _Room, replica: Replica, model: ModelState) -> None:
    spec = model.spec
    trying = spec.name in room.starting
    why = no_start_now(step, model, trying)
    if why:
        model.blocked = why
        return
    found = _best_fit(state, room.ready, spec)
    if found is not None:
        node, gpus = found
        _take(room.ready, node, gpus)
        if node.id in room.coming:
            _take(room.coming, node, gpus)
        _start_or_wait(state, step, room, replica, node, gpus)
        return
    if model.failed:
        model.blocked = f"nothing is bought after {model.failures} failed starts"
        return
    coming = _best_fit(state, room.coming, spec)
    if coming is None:
        node_bought = buy(state, step, model)
        if node_bought is None:
            return
        gpus = gpus_on(spec, node_bought.offerings[0])[0] or spec.gpus_per_replica
        coming = (node_bought, gpus)
        room.coming[node_bought.id] = node_bought.expected_gpus
    _take(room.coming, *coming)
    if coming[0].id in room.ready:
        # What is free there already is kept for it, else small replicas would starve a large one.
        _take(room.ready, coming[0], min(coming[1], room.ready[coming[0].id]))
    room.starting.add(spec.name)


def _take(free: dict[str, int], node: Node, gpus: int) -> None:
    """A node that is full is looked at no more: many replicas in one step stay cheap."""
    free[node.id] -= gpus
    if free[node.id] <= 0:
        del free[node.id]


def _best_fit(state: State, free: dict[str, int], spec: ModelSpec) -> tuple[Node, int] | None:
    """One that has the weights if there is one, with the least room left, the oldest of equals."""
    best: tuple[Node, int] | None = None
    best_key = (True, 0)
    for node_id, room in free.items():
        node = state.fleet.node(node_id)
        gpus = gpus_there(node, spec) if node is not None else None
        if node is None or gpus is None or room < gpus:
            continue
        key = (bool(spec.weights) and spec.weights not in node.weights, room)
        if best is None or key < best_key:
            best, best_key = (node, gpus), key
    return best


def _start_or_wait(
    state: State, step: Step, room: _Room, replica: Replica, node: Node, gpus: int
) -> None:
    """Engines that load at once share the host's memory: only so many at a time.

    What still fetches its weights will load, too, but must not keep other models waiting.
    """
    pool = state.pools.get(node.pool)
    loads = room.loads[node.id] + room.fetches[node.id, replica.model]
    if pool is not None and loads >= pool.spec.max_loads:
        told = f"waits on {node.id}: {loads} engine{'s' * (loads != 1)} load there"
        state.fleet.put_replica(replace(replica, load_phase=told))
        return
    room.loads[node.id] += 1
    room.starting.add(replica.model)
    state.replica_to(
        step,
        replica,
        ReplicaPhase.STARTING,
        f"placed on {node.id}",
        node_id=node.id,
        gpus=gpus,
        load_phase="",
        order="start",
        asked_at=None,
    )
    state.fleet.put_node(replace(node, idle_since=None))


def _scattered(ready: dict[str, int], spec: ModelSpec) -> str:
    """Enough GPUs are free, but not on one node: said, since it looks like room."""
    free = sorted(ready.values(), reverse=True)
    if spec.gpus_per_replica < 2 or not free or sum(free) < spec.gpus_per_replica:
        return ""
    shown = " + ".join(map(str, free[:8]))
    return f"; free are {shown} GPUs, {spec.gpus_per_replica} are needed on one node"


def return_idle(state: State, step: Step) -> None:
    """Gives back READY nodes on which nothing has run for the pool's `idle_timeout`."""
    for node in state.fleet.nodes({NodePhase.READY}):
        if not state.fleet.is_empty(node.id):
            if node.idle_since is not None:
                state.fleet.put_node(replace(node, idle_since=None))
            continue
        if node.idle_since is None:
            node = state.fleet.put_node(replace(node, idle_since=step.now))
        pool = state.pools.get(node.pool)
        if pool is None or pool.in_outage:
            continue  # it could not be given back, nor another one be had
        limit = pool.spec.idle_timeout
        idle_since = node.idle_since if node.idle_since is not None else step.now
        if step.due(idle_since + limit):
            state.node_to(step, node, NodePhase.TERMINATING, f"no replica for {limit:g} s")
