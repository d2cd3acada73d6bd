"""The decision core: facts and time in, intentions out.

`Core.step` never awaits, reads no clock, and exactly one task calls it. One step: apply events →
limits of time → replica targets → counts and placement → returns → orders → table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, assert_never

from elasticd.core import events as ev
from elasticd.core.actions import Plan, PublishTable, Reason
from elasticd.core.apply_cluster import (
    on_cluster,
    on_endpoint_broken,
    on_order_failed,
    on_order_taken,
)
from elasticd.core.apply_provider import (
    on_instances,
    on_launch_answered,
    on_launch_failed,
    on_list_failed,
    on_offerings,
    on_terminate_answered,
    on_terminate_failed,
)
from elasticd.core.deadlines import ask, pass_limits
from elasticd.core.demand import Demand
from elasticd.core.down import give_back
from elasticd.core.drain import continue_drains, on_notice, on_notice_taken_back
from elasticd.core.fleet import Fleet, Row
from elasticd.core.placement import adjust_counts, place, return_idle
from elasticd.core.scaling import ReplicaTarget, decide_target
from elasticd.core.specs import FleetSpec
from elasticd.core.state import ModelState, PoolState, State, Step
from elasticd.core.status import status
from elasticd.core.table import routes
from elasticd.routing_table import ModelRoute, RoutingTable

__all__ = ["Core", "Row"]

_RECENT = 50


class Core:
    """The fleet and everything decided about it.

    `rows` are the ledger's, of an earlier life; `epoch` is new with each life.
    """

    def __init__(self, ledger_id: str, epoch: int, rows: Sequence[Row] = ()) -> None:
        self._state = State(ledger_id, Fleet(f"{ledger_id[:8]}-{epoch}", rows))
        self._epoch = epoch
        self._version = 0
        self._published: tuple[ModelRoute, ...] | None = None
        self._recent: deque[tuple[float, Reason]] = deque(maxlen=_RECENT)
        self._saved: dict[str, int] = {}
        self._down_saved = ""
        self._cluster_saved = ""
        for row in rows:
            if row.kind == "model" and row.doc is not None:
                self._saved[row.id] = self._state.targets[row.id] = int(row.doc["target"])
            elif row.kind == "down" and row.doc is not None:
                self._down_saved = self._state.down = str(row.doc["by"])
            elif row.kind == "cluster" and row.doc is not None:
                self._cluster_saved = str(row.doc["name"])

    def step(self, now: float, events: Sequence[ev.Event]) -> Plan:
        """What follows from these facts at this time."""
        state, step = self._state, Step(now)
        for event in events:
            self._apply(step, event)
        pass_limits(state, step)
        self._set_targets(step)
        continue_drains(state, step)
        if state.down:
            give_back(state, step)
        else:
            adjust_counts(state, step)
            place(state, step)
            return_idle(state, step)
        ask(state, step)
        state.fleet.forget_old(now)
        self._publish(step)
        self._recent.extend((now, r) for r in step.reasons)
        return Plan(tuple(step.actions), tuple(step.reasons), step.wake)

    def changed_rows(self) -> list[Row]:
        """What the ledger must write for the steps since the last call."""
        rows = list(self._state.fleet.changed_rows())
        for name, model in self._state.models.items():
            if model.target is not None and self._saved.get(name) != model.target.replicas:
                self._saved[name] = model.target.replicas
                rows.append(Row("model", name, {"target": model.target.replicas}))
        down = self._state.down
        if down != self._down_saved:
            self._down_saved = down
            rows.append(Row("down", "fleet", {"by": down} if down else None))
        if self._state.cluster != self._cluster_saved:
            self._cluster_saved = self._state.cluster
            rows.append(Row("cluster", "name", {"name": self._state.cluster}))
        return rows

    def status(self, now: float) -> dict[str, Any]:
        """A JSON-able picture of everything known, with the latest reasons, newest last."""
        recent = [{"at": at, "subject": r.subject, "text": r.text} for at, r in self._recent]
        return {**status(self._state, now), "epoch": self._epoch, "recent": recent}

    def _apply(self, step: Step, event: ev.Event) -> None:  # noqa: C901 - one arm an event
        state = self._state
        match event:
            case ev.Configured():
                _configure(state, event.spec)
            case ev.OfferingsListed():
                on_offerings(state, event)
            case ev.InstancesListed():
                on_instances(state, step, event)
            case ev.ListFailed():
                on_list_failed(state, event)
            case ev.LaunchAnswered():
                on_launch_answered(state, step, event)
            case ev.LaunchFailed():
                on_launch_failed(state, step, event)
            case ev.TerminateAnswered():
                on_terminate_answered(state, step, event)
            case ev.TerminateFailed():
                on_terminate_failed(state, step, event)
            case ev.ClusterObserved():
                on_cluster(state, step, event)
            case ev.ClusterUnreachable():
                state.cluster_complete, state.cluster_detail = False, event.message
            case ev.ReplicaOrderFailed():
                on_order_failed(state, step, event)
            case ev.ReplicaOrderTaken():
                on_order_taken(state, step, event)
            case ev.DemandSampled():
                _on_demand(state, step, event)
            case ev.LoadSampled():
                state.loads = {load.replica_id: load.in_flight for load in event.loads}
                state.loads_at = step.now
            case ev.EndpointBroken():
                on_endpoint_broken(state, step, event)
            case ev.NoticeArrived():
                on_notice(state, step, event)
            case ev.NoticeTakenBack():
                on_notice_taken_back(state, step, event)
            case ev.DownRequested():
                _on_down(state, step, event)
            case ev.ServeRequested():
                _on_serve(state, step, event)
            case _:
                assert_never(event)

    def _set_targets(self, step: Step) -> None:
        state = self._state
        for name, model in state.models.items():
            if state.down:
                model.target = ReplicaTarget(0, ("everything is being given back",))
                continue
            before = model.target.replicas if model.target is not None else state.targets.get(name)
            model.target = decide_target(step.now, model.spec.scaling, model.demand, before)
            if before != model.target.replicas:
                step.because(
                    f"model:{name}",
                    f"{before if before is not None else 'new'} → {model.target.replicas} "
                    f"replicas: {' → '.join(model.target.reasons)}",
                )

    def _publish(self, step: Step) -> None:
        current = routes(self._state)
        if current != self._published and (current or self._published is not None):
            self._published = current
            self._version += 1
            step.act(PublishTable(RoutingTable(self._epoch, self._version, current)))


def _configure(state: State, spec: FleetSpec) -> None:
    state.cluster = spec.cluster
    pools = {}
    for pool in spec.pools:
        known = state.pools.get(pool.name)
        if known is None:
            known = PoolState(pool)
        known.spec = pool
        pools[pool.name] = known
    state.pools = pools
    models = {}
    for model in spec.models:
        delays = (model.scaling.upscale_delay, model.scaling.downscale_delay)
        known_model = state.models.get(model.name)
        if known_model is None:
            known_model = ModelState(model, Demand(*delays))
        known_model.spec = model
        known_model.demand.retime(*delays)
        models[model.name] = known_model
    state.models = models


def _on_demand(state: State, step: Step, event: ev.DemandSampled) -> None:
    model = state.models.get(event.model)
    if model is not None:
        model.demand.sample(step.now, event.queued, event.in_flight, event.peak, event.arrivals)


def _on_down(state: State, step: Step, event: ev.DownRequested) -> None:
    if not state.down:
        state.down, state.down_since = event.by, step.now
        step.because("fleet", f"everything is given back ({event.by})")


def _on_serve(state: State, step: Step, event: ev.ServeRequested) -> None:
    if state.down:
        step.because("fleet", f"serves again ({event.by})")
        state.down = ""
        for model in state.models.values():
            model.target = None
