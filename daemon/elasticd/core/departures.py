"""What became of the requests and of the strength of the models when a node that served went.

A departure begins with the drain of a node, or with its loss, and is told for as long as the node
is listed. The gateway counts the requests; how long it took until each model had all its replicas
again is seen here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticd.core.drain import is_whole
from elasticd.core.events import RequestsMoved
from elasticd.core.failures import HINDSIGHT
from elasticd.core.fleet import Node, Replica
from elasticd.core.lifecycle import LIVE, NodePhase
from elasticd.core.records import Departure
from elasticd.core.state import State, Step


def follow_departures(state: State, step: Step) -> None:
    """Sees what has begun and ended in this step."""
    for node_id in step.left_service:
        node = state.fleet.node(node_id)
        if node is not None and node.phase is not NodePhase.READY:
            _begin(state, step, node)
    for departure in list(state.departures.values()):
        state.departures[departure.node_id] = _followed(state, step, departure)
    for name, model in state.models.items():
        if model.lost and is_whole(state, name):
            model.lost = ""


def on_requests_moved(state: State, event: RequestsMoved) -> None:
    """The gateway's count for one replica, from the beginning each time: the highest holds, for a
    gateway that has started again counts anew."""
    if state.fleet.replica(event.replica_id) is None:
        return
    state.moved[event.replica_id] = _highest(event, state.moved.get(event.replica_id))


def on_gateway_began(state: State) -> None:
    """What it had under way is not known any more, and not zero."""
    for key, departure in state.departures.items():
        if not (departure.back or _is_over(departure)):
            state.departures[key] = replace(departure, partial=True)


def departures(state: State, now: float) -> list[dict[str, Any]]:
    """All departures that are still told, oldest first; ages and durations in seconds."""
    return [_view(d, _counts(d), now) for d in state.departures.values()]


def _counts(departure: Departure) -> list[int]:
    """Requests by what became of them: finished, continued, restarted, lost."""
    before = {moved.replica_id: _numbers(moved) for moved in departure.before}
    sums = [0, 0, 0, 0]
    for moved in departure.counted:
        earlier = before.get(moved.replica_id, (0, 0, 0, 0))
        # A gateway that has started again counts anew.
        sums = [s + max(0, n - e) for s, n, e in zip(sums, _numbers(moved), earlier, strict=True)]
    return sums


def _counted(state: State, departure: Departure) -> Departure:
    """With what is known now; an earlier life of the controller, or of the gateway, may have known
    more."""
    counted = {moved.replica_id: moved for moved in departure.counted}
    for replica_id in departure.replicas:
        if (moved := state.moved.get(replica_id)) is not None:
            counted[replica_id] = _highest(moved, counted.get(replica_id))
    told = tuple(counted.values())
    return departure if told == departure.counted else replace(departure, counted=told)


def _highest(one: RequestsMoved, other: RequestsMoved | None) -> RequestsMoved:
    if other is None:
        return one
    numbers = map(max, _numbers(one), _numbers(other))
    return RequestsMoved(one.replica_id, *numbers)


def _numbers(moved: RequestsMoved) -> tuple[int, int, int, int]:
    return moved.finished, moved.continued, moved.restarted, moved.lost


def _begin(state: State, step: Step, node: Node) -> None:
    drains = node.phase is NodePhase.DRAINING and node.cut_at is not None
    hindsight = 0.0 if drains else HINDSIGHT
    here = [r for r in state.fleet.replicas() if r.node_id == node.id]
    served = [r for r in here if _served(r, step.now, hindsight)]
    if not served:
        return
    broken = [r.broken_at for r in served if r.broken_at is not None]
    earlier = state.departures.pop(node.id, None)  # the latest stands last
    state.departures[node.id] = Departure(
        node_id=node.id,
        began=step.now if drains else min(broken, default=step.now),
        why=node.reason,
        models=tuple(sorted({r.model for r in served})),
        replicas=tuple(r.id for r in served),
        notice=node.cut_at - step.now if drains and node.cut_at is not None else None,
        before=earlier.counted if earlier is not None else (),
    )


def _served(replica: Replica, now: float, hindsight: float) -> bool:
    """Whether it did until now, or, of a machine that is lost, until just before."""
    if replica.ready_at is None:
        return False
    return replica.phase in LIVE or now - replica.since < hindsight


def _is_over(departure: Departure) -> bool:
    return departure.whole_at is not None and departure.ended_at is not None


def _followed(state: State, step: Step, departure: Departure) -> Departure:
    if departure.back:
        return departure
    departure = _counted(state, departure)
    if _is_over(departure):
        return departure
    node = state.fleet.node(departure.node_id)
    if node is not None and node.phase is NodePhase.READY:
        return replace(departure, back=True)
    if node is not None and node.phase is NodePhase.DRAINING and node.cut_at is not None:
        notice = node.cut_at - departure.began
        if departure.notice is None or notice < departure.notice:
            departure = replace(departure, notice=notice)
    if departure.ended_at is None and (node is None or node.phase is not NodePhase.DRAINING):
        departure = replace(departure, ended_at=step.now)
    if departure.whole_at is None and all(is_whole(state, name) for name in departure.models):
        departure = replace(departure, whole_at=step.now)
    return departure


def _view(departure: Departure, moved: list[int], now: float) -> dict[str, Any]:
    began = departure.began
    finished, continued, restarted, lost = moved
    return {
        "node_id": departure.node_id,
        "age": max(0.0, now - began),
        "why": departure.why,
        "models": list(departure.models),
        "notice": departure.notice,
        "taken_back": departure.back,
        "partial": departure.partial,
        "ended_after": None if departure.ended_at is None else departure.ended_at - began,
        "whole_after": None if departure.whole_at is None else departure.whole_at - began,
        "finished": finished,
        "continued": continued,
        "restarted": restarted,
        "lost": lost,
    }
