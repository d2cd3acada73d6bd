"""How many replicas there are: missing ones are made, those too many are drained.

A changed spec is rolled out surge one, drain one: one replica of the new spec beyond the target,
and as soon as it is ready one of the old spec goes. Where there is no room for one more, an old
one makes room first.
"""

from __future__ import annotations

from elasticd.core.drain import drain_replica, surplus
from elasticd.core.fleet import Replica
from elasticd.core.lifecycle import COUNTED, ReplicaPhase
from elasticd.core.notices import leaving
from elasticd.core.shapes import gpus_there
from elasticd.core.specs import ModelSpec
from elasticd.core.state import ModelState, State, Step

LEFTOVER_TIME = 60.0
"""Seconds for what still runs on replicas of a model that is no longer configured."""


def adjust_counts(state: State, step: Step) -> None:
    """Makes as many PENDING replicas as are missing, drains as many as are too many."""
    for name in state.fleet.model_names():
        if name not in state.models:
            for replica in state.fleet.replicas(COUNTED, model=name):
                end = step.now + LEFTOVER_TIME
                drain_replica(state, step, replica, end, "model no longer configured")
    gone_soon = leaving(state, step)
    for model in state.models.values():
        _adjust(state, step, model, gone_soon)


def _counted(state: State, model: ModelState, gone_soon: frozenset[str]) -> list[Replica]:
    """Those on nodes that are to be replaced serve on, and count no more."""
    counted = state.fleet.replicas(COUNTED, model=model.spec.name)
    return [r for r in counted if r.node_id not in gone_soon] if gone_soon else counted


def _adjust(state: State, step: Step, model: ModelState, gone_soon: frozenset[str]) -> None:
    target = model.target.replicas if model.target is not None else 0
    counted = _counted(state, model, gone_soon)
    current = [r for r in counted if r.spec_hash == model.spec.spec_hash]
    old = [r for r in counted if r.spec_hash != model.spec.spec_hash]
    if old:
        _roll_out(state, step, model, current, old)
        return
    if model.spec.unresolved:
        return
    for _ in range(target - len(current)):
        _new_replica(state, step, model.spec)
    _drain(state, step, model, surplus(current, len(current) - target), "no longer needed")


def _roll_out(
    state: State, step: Step, model: ModelState, current: list[Replica], old: list[Replica]
) -> None:
    target = model.target.replicas if model.target is not None else 0
    if model.spec.unresolved:
        _drain(state, step, model, surplus(old, len(old) - target), "no longer needed")
        return
    placed = [r for r in old if r.phase is not ReplicaPhase.PENDING]
    unplaced = [r for r in old if r.phase is ReplicaPhase.PENDING]
    _drain(state, step, model, unplaced, "replaced by a newer spec")
    ready = sum(1 for r in current if r.phase is ReplicaPhase.READY)
    leaving = surplus(placed, min(len(placed), ready + len(placed) - target))
    _drain(state, step, model, leaving, "replaced by a newer spec")
    staying = len(placed) - len(leaving)
    for _ in range(min(target - len(current), target + 1 - len(current) - staying)):
        _new_replica(state, step, model.spec)
    # The target may have fallen in the middle: new ones that do not serve yet wait their turn.
    beside = min(target, target + 1 - staying)
    too_many = surplus(current, len(current) - max(beside, ready))
    _drain(state, step, model, too_many, "no longer needed")


def make_room(state: State, step: Step) -> bool:
    """Where a roll-out finds no place for one more, an old replica goes first.

    One at a time: the next goes when what it made room for serves. Never because a new one does not
    start, because it is not known what could be rented, or for a spec that would not fit there.
    Tells whether one goes.
    """
    made = False
    gone_soon = leaving(state, step)
    for model in state.models.values():
        if not model.no_room or model.failures or not _in_order(state, model):
            continue
        old = [
            r
            for r in _counted(state, model, gone_soon)
            if r.phase is ReplicaPhase.READY
            and r.spec_hash != model.spec.spec_hash
            and _would_fit(state, r, model.spec)
        ]
        if old:
            model.room_made_at = step.now
            _drain(state, step, model, surplus(old, 1), "makes room for a newer spec")
            made = True
    return made


def _in_order(state: State, model: ModelState) -> bool:
    """Nothing of the model is on its way, and the last one that made room was made good use of."""
    if state.fleet.replicas({ReplicaPhase.STARTING, ReplicaPhase.DRAINING}, model.spec.name):
        return False
    made = model.room_made_at
    ready = state.fleet.replicas({ReplicaPhase.READY}, model.spec.name)
    return made is None or any(
        r.spec_hash == model.spec.spec_hash and r.ready_at is not None and r.ready_at > made
        for r in ready
    )


def _would_fit(state: State, replica: Replica, spec: ModelSpec) -> bool:
    """Whether the node of this replica could hold one of the new spec in its place."""
    node = state.fleet.node(replica.node_id)
    gpus = gpus_there(node, spec) if node is not None else None
    return node is not None and gpus is not None and gpus <= node.usable_gpus


def _drain(state: State, step: Step, model: ModelState, leaving: list[Replica], why: str) -> None:
    for replica in leaving:
        drain_replica(state, step, replica, step.now + model.spec.drain_timeout, why)


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
