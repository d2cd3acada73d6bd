"""Starts that fail: the pauses between them, and when a model counts as failed."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.fleet import Replica
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.state import ModelState, State, Step, growing_pause

PROBE_PERIOD = 600.0
"""Seconds between two tries of a model that counts as failed, on nodes that are there anyway."""

STEADY_AFTER = 120.0
"""Seconds for which a replica must have served before its start counts as one that worked."""

HINDSIGHT = 90.0
"""Seconds in which the loss of a node still explains a failure on it: the actors of a machine that
is gone are missed before the machine is."""

ITS_MACHINE = "its machine is lost"
"""Why a replica ended that had seemed to end by itself."""

_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0


def count_failed_start(state: State, step: Step, replica: Replica, cause: str) -> None:
    """A replica that did not get ready, or not for long: the model's next start waits, longer each
    time.

    Neither the loss of its node nor a start of an older spec says anything about the model.
    """
    if replica.ready_at is not None and step.now - replica.ready_at >= STEADY_AFTER:
        return
    model = state.models.get(replica.model)
    if (
        model is None
        or replica.spec_hash != model.spec.spec_hash
        or _node_is_to_blame(state, replica)
    ):
        return
    was_failed = model.failed
    if not _is_proven(state, step, replica) or model.failures + 1 < model.spec.start_attempts:
        model.failures += 1
    count, _ = model.blamed.get(replica.node_id, (0, 0.0))
    model.blamed[replica.node_id] = (count + 1, step.now)
    model.failed_at = step.now
    model.last_cause = cause
    model.last_tail = replica.log_tail or model.last_tail
    if model.failed:
        model.retry_at = step.now + PROBE_PERIOD
    else:
        pause = growing_pause(model.failures, _FIRST_PAUSE, _LONGEST_PAUSE)
        model.retry_at = step.now + pause
    if model.failed and not was_failed:
        step.because(
            f"model:{replica.model}",
            f"failed: {model.failures} starts in a row did not work, last: {cause}; nothing "
            "more is bought for it",
        )


def blame_node(state: State, step: Step, node_id: str, *, lost: bool = True) -> None:
    """The node goes, and may have been going for a while: what failed on it just before says
    nothing about the model. `lost`: it is dead or gone, which then was the reason."""
    for replica in state.fleet.replicas({ReplicaPhase.STOPPED}) if lost else ():
        if replica.node_id == node_id and _just_ended_by_itself(step, replica):
            state.fleet.put_replica(replace(replica, cause=ITS_MACHINE))
            step.because(f"replica:{replica.id}", f"{replica.model}: {ITS_MACHINE}: {node_id}")
    for model in state.models.values():
        count, at = model.blamed.pop(node_id, (0, 0.0))
        if not count or step.now - at > HINDSIGHT:
            continue
        model.failures = max(0, model.failures - count)
        model.retry_at = step.now
        if at == model.failed_at:  # what was told last was this
            model.last_cause, model.last_tail = "", ()
        if not model.failures:
            model.give_another_chance()


def _just_ended_by_itself(step: Step, replica: Replica) -> bool:
    if replica.order != "start" or replica.cause == ITS_MACHINE:
        return False
    return step.now - replica.since <= HINDSIGHT


def _is_proven(state: State, step: Step, failed: Replica) -> bool:
    """Whether it did serve, and another one of its spec has served steadily all the while: then
    engines end for other reasons than that their model cannot be served."""
    if failed.ready_at is None:
        return False
    return any(
        r.spec_hash == failed.spec_hash
        and r.broken_at is None
        and r.ready_at is not None
        and step.now - r.ready_at >= STEADY_AFTER
        for r in state.fleet.replicas({ReplicaPhase.READY}, failed.model)
    )


def _node_is_to_blame(state: State, replica: Replica) -> bool:
    if not replica.node_id:
        return False
    node = state.fleet.node(replica.node_id)
    return node is None or node.phase is not NodePhase.READY or node.dead_since is not None


def no_start_now(step: Step, model: ModelState, starting: bool) -> str:
    """Why a model that has just failed to start gets no further start now; empty: it may.

    After a failure one replica at a time tries: what broke it would break all of them.
    """
    if not step.due(model.retry_at):
        return f"a start has failed, the next one waits ({_phrase(model.last_cause)})"
    if model.failures and starting:
        return f"one start at a time after a failed one ({_phrase(model.last_cause)})"
    return ""


def _phrase(cause: str) -> str:
    return cause.rstrip(" .") or "cause not known"


def forgive(state: State, step: Step) -> None:
    """One that became ready after the last failure and has served for a while ends the row."""
    for model in state.models.values():
        if not model.failures:
            continue
        for replica in state.fleet.replicas({ReplicaPhase.READY}, model.spec.name):
            since = replica.ready_at
            later = since is not None and since >= model.failed_at
            if later and since is not None and step.due(since + STEADY_AFTER):
                model.give_another_chance()
                break
