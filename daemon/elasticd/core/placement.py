"""Where replicas go: nodes there are, then nodes that are coming, then the cheapest that fits."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.drain import drain_replica, surplus
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import COUNTED, LIVE, NODE_COMING, NODE_PAID, NodePhase, ReplicaPhase
from elasticd.core.specs import ModelSpec
from elasticd.core.state import ModelState, PoolState, State, Step
from elasticd.provider import Offering


def adjust_counts(state: State, step: Step) -> None:
    """Makes as many PENDING replicas as are missing, drains as many as are too many."""
    for name in sorted({r.model for r in state.fleet.replicas(COUNTED)} - set(state.models)):
        for replica in state.fleet.replicas(COUNTED, model=name):
            drain_replica(state, step, replica, step.now + 60.0, "model no longer configured")
    for name, model in state.models.items():
        target = model.target.replicas if model.target is not None else 0
        counted = state.fleet.replicas(COUNTED, model=name)
        current = [r for r in counted if r.spec_hash == model.spec.spec_hash]
        for _ in range(target - len(current)):
            _new_replica(state, step, model.spec)
        stop_at = step.now + model.spec.drain_timeout
        for replica in surplus(current, len(current) - target):
            drain_replica(state, step, replica, stop_at, "no longer needed")
        _roll_out(state, step, model, [r for r in counted if r not in current])


def _new_replica(state: State, step: Step, spec: ModelSpec) -> None:
    replica = Replica(
        id=state.fleet.mint("r"),
        incarnation=1,
        model=spec.name,
        spec_hash=spec.spec_hash,
        gpus=spec.gpus_per_replica,
        phase=ReplicaPhase.PENDING,
        created=step.now,
        since=step.now,
    )
    state.fleet.put_replica(replica)
    step.because(f"replica:{replica.id}", f"{spec.name}: wanted")


def _roll_out(state: State, step: Step, model: ModelState, old: list[Replica]) -> None:
    """Replicas of an earlier spec serve until new ones do, or must make room for them."""
    if not old:
        return
    target = model.target.replicas if model.target is not None else 0
    ready = [
        r
        for r in state.fleet.replicas({ReplicaPhase.READY}, model=model.spec.name)
        if r.spec_hash == model.spec.spec_hash
    ]
    draining = state.fleet.replicas({ReplicaPhase.DRAINING}, model=model.spec.name)
    stop_at = step.now + model.spec.drain_timeout
    leaving = old[:1] if model.blocked and not draining else []
    if len(ready) >= target:
        leaving = old
    for replica in leaving:
        drain_replica(state, step, replica, stop_at, "replaced by a newer spec")


def place(state: State, step: Step) -> None:
    """Starts PENDING replicas where there is room; rents what is missing."""
    used = state.fleet.occupied()
    ready = {
        n.id: n.expected_gpus - used.get(n.id, 0)
        for n in state.fleet.nodes({NodePhase.READY})
        if n.dead_since is None  # Ray would refuse; whether it is lost is decided elsewhere
    }
    coming = _coming(state, ready)
    for model in state.models.values():
        model.blocked, model.unplaced = "", False
    for replica in state.fleet.replicas({ReplicaPhase.PENDING}):
        model_state = state.models.get(replica.model)
        if model_state is None:
            continue
        if not step.due(model_state.retry_at):
            model_state.blocked = f"after a failed start ({model_state.last_cause})"
            continue
        node = _roomiest_fit(state, ready, model_state.spec)
        if node is not None:
            ready[node.id] -= replica.gpus
            _start(state, step, replica, node)
            continue
        node = _roomiest_fit(state, coming, model_state.spec) or _buy(state, step, model_state)
        if node is not None:
            coming[node.id] = coming.get(node.id, node.expected_gpus) - replica.gpus
    for model_state in state.models.values():
        if model_state.unplaced:
            model_state.blocked = "; ".join(_refusals(state, step, model_state.spec))


def _coming(state: State, ready: dict[str, int]) -> dict[str, int]:
    """GPUs that need not be bought: on nodes that boot, and under engines on their way out."""
    coming = {n.id: n.expected_gpus for n in state.fleet.nodes(NODE_COMING)}
    for replica in state.fleet.replicas({ReplicaPhase.DRAINING}):
        if replica.order == "stop" and replica.node_id in ready:
            room = coming.get(replica.node_id, ready[replica.node_id])
            coming[replica.node_id] = room + replica.gpus
    return coming


def _roomiest_fit(state: State, free: dict[str, int], spec: ModelSpec) -> Node | None:
    """The node with the least room left over; the oldest of equals."""
    best: Node | None = None
    for node_id, room in free.items():
        node = state.fleet.node(node_id)
        if node is None or room < spec.gpus_per_replica or not _suits(node, spec):
            continue
        if best is None or room < free[best.id]:
            best = node
    return best


def _suits(node: Node, spec: ModelSpec) -> bool:
    if node.pool not in spec.pools:
        return False
    if not spec.accelerators:
        return True
    offered = (node.offering,) if node.offering is not None else node.offerings
    return all(o.gpu_kind in spec.accelerators for o in offered)


def _start(state: State, step: Step, replica: Replica, node: Node) -> None:
    state.replica_to(
        step,
        replica,
        ReplicaPhase.STARTING,
        f"placed on {node.id}",
        node_id=node.id,
        order="start",
        asked_at=None,
    )
    state.fleet.put_node(replace(node, idle_since=None))


def _buy(state: State, step: Step, model: ModelState) -> Node | None:
    """Asks for a machine of the pool with the cheapest offering that fits."""
    best: tuple[int, PoolState, tuple[Offering, ...]] | None = None
    for name in model.spec.pools:
        pool = state.pools.get(name)
        offers = _for_sale(state, step, pool, model.spec)[0] if pool is not None else ()
        if pool is not None and offers and (best is None or offers[0].price_micros < best[0]):
            best = (offers[0].price_micros, pool, offers)
    if best is None:
        model.unplaced = True
        return None
    price, pool, offers = best
    node = Node(
        id=state.fleet.mint("n"),
        pool=pool.spec.name,
        phase=NodePhase.REQUESTED,
        created=step.now,
        since=step.now,
        offerings=offers,
    )
    step.because(
        f"node:{node.id}",
        f"rented for {model.spec.name}: {offers[0].id} at {price / 1e6:.2f} "
        f"{offers[0].currency}/h is the cheapest that fits",
    )
    return state.fleet.put_node(node)


def _refusals(state: State, step: Step, spec: ModelSpec) -> list[str]:
    """Why no pool sells, as things are after this step's purchases."""
    told = []
    for name in spec.pools:
        pool = state.pools.get(name)
        refusal = "no such pool" if pool is None else _for_sale(state, step, pool, spec)[1]
        if refusal:
            told.append(f"{name}: {refusal}")
    return told


def _for_sale(
    state: State, step: Step, pool: PoolState, spec: ModelSpec
) -> tuple[tuple[Offering, ...], str]:
    """The pool's offerings that fit, cheapest first, or why nothing can be bought there."""
    if state.down:
        return (), "everything is being given back"
    if pool.foreign:
        return (), f"machines there belong to another ledger ({pool.foreign})"
    if pool.listed_at is None or pool.offerings is None:
        return (), pool.last_error or "its machines are not listed yet"
    if not step.due(pool.blocked_until):
        return (), pool.blocked
    paid = sum(1 for n in state.fleet.nodes(NODE_PAID) if n.pool == pool.spec.name)
    if paid + len(pool.orphans) >= pool.spec.max_nodes:
        return (), f"max_nodes {pool.spec.max_nodes} reached"
    wanted = [o for o in pool.offerings if _fits(o, pool, spec)]
    if not wanted:
        return (), f"no offering with {spec.gpus_per_replica} GPUs on one machine that fits"
    fresh = [o for o in wanted if o.available and step.due(pool.aside.get(o.id, (0.0, 0))[0])]
    if not fresh:
        return (), "sold out" + (f" ({pool.last_error})" if pool.last_error else "")
    return tuple(sorted(fresh, key=lambda o: (o.price_micros, o.id))), ""


def _fits(offering: Offering, pool: PoolState, spec: ModelSpec) -> bool:
    for kinds in (pool.spec.accelerators, spec.accelerators):
        if kinds and offering.gpu_kind not in kinds:
            return False
    return offering.gpu_count >= spec.gpus_per_replica


def return_idle(state: State, step: Step) -> None:
    """Gives back READY nodes on which nothing has run for the pool's `idle_timeout`."""
    for node in state.fleet.nodes({NodePhase.READY}):
        if state.fleet.replicas(LIVE, node_id=node.id):
            if node.idle_since is not None:
                state.fleet.put_node(replace(node, idle_since=None))
            continue
        if node.idle_since is None:
            node = state.fleet.put_node(replace(node, idle_since=step.now))
        pool = state.pools.get(node.pool)
        limit = pool.spec.idle_timeout if pool is not None else 0.0
        idle_since = node.idle_since if node.idle_since is not None else step.now
        if step.due(idle_since + limit):
            state.node_to(step, node, NodePhase.TERMINATING, f"no replica for {limit:g} s")
