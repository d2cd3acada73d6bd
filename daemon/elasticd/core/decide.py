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
    on_boot_log,
    on_instances,
    on_launch_answered,
    on_launch_failed,
    on_list_failed,
    on_offerings,
    on_terminate_answered,
    on_terminate_failed,
)
from elasticd.core.budget import keep_to_budget
from elasticd.core.configure import configure
from elasticd.core.counts import adjust_counts, make_room
from elasticd.core.deadlines import ask, pass_limits
from elasticd.core.departures import follow_departures, on_gateway_began, on_requests_moved
from elasticd.core.down import give_back
from elasticd.core.drain import (
    close_pools,
    continue_drains,
    on_drain_requested,
    on_undrain_requested,
)
from elasticd.core.failures import forgive
from elasticd.core.fleet import Fleet, Row
from elasticd.core.hold import held_target, on_hold_released, on_scale_held, pass_holds
from elasticd.core.lifecycle import COUNTED, NODE_COMING, ReplicaPhase
from elasticd.core.notices import follow_hints, on_notice, on_notice_taken_back
from elasticd.core.placement import place, return_idle, tell_what_blocks
from elasticd.core.reaper import on_adopt_requested
from elasticd.core.saved import Keeper
from elasticd.core.scaling import ReplicaTarget, Service, decide_target
from elasticd.core.spend import count_spend, start_day
from elasticd.core.state import ModelState, State, Step
from elasticd.core.status import status
from elasticd.core.table import Routes
from elasticd.routing_table import ModelRoute, RoutingTable

__all__ = ["Core", "Row"]

_RECENT = 50


class Core:
    """The fleet and everything decided about it.

    `rows` are the ledger's, of an earlier life; `epoch` is new with each life.
    """

    def __init__(self, ledger_id: str, epoch: int, rows: Sequence[Row] = ()) -> None:
        self._state = State(ledger_id, Fleet(f"{ledger_id[:8]}-{epoch}", rows), epoch=epoch)
        self._epoch = epoch
        self._version = 0
        self._published: tuple[ModelRoute, ...] | None = None
        self._recent: deque[tuple[float, Reason]] = deque(maxlen=_RECENT)
        self._keeper = Keeper(self._state, rows)
        self._routes = Routes()

    def step(self, now: float, events: Sequence[ev.Event]) -> Plan:
        """What follows from these facts at this time."""
        state, step = self._state, Step(now)
        state.began = now if state.began is None else state.began
        count_spend(state, now)
        for event in events:
            self._apply(step, event)
        pass_limits(state, step)
        forgive(state, step)
        pass_holds(state, step)
        self._set_targets(step)
        close_pools(state, step)
        keep_to_budget(state, step)
        follow_hints(state, step)
        continue_drains(state, step)
        if state.down:
            give_back(state, step)
        else:
            adjust_counts(state, step)
            place(state, step)
            if make_room(state, step):
                adjust_counts(state, step)
                place(state, step)
            return_idle(state, step)
            tell_what_blocks(state, step)
        ask(state, step)
        follow_departures(state, step)
        for key in state.fleet.forget_old(now):
            state.forget(key)
        self._publish(step)
        self._recent.extend((now, r) for r in step.reasons)
        return Plan(tuple(step.actions), tuple(step.reasons), step.wake)

    def changed_rows(self) -> list[Row]:
        """What the ledger must write for the steps since the last call."""
        return self._keeper.changed_rows()

    def status(self, now: float) -> dict[str, Any]:
        """A JSON-able picture of everything known, with the latest reasons, newest last."""
        recent = [{"at": at, "subject": r.subject, "text": r.text} for at, r in self._recent]
        return {**status(self._state, now), "epoch": self._epoch, "recent": recent}

    def _apply(self, step: Step, event: ev.Event) -> None:  # noqa: C901 - one arm an event
        state = self._state
        match event:
            case ev.Configured():
                configure(state, step, event)
            case ev.OfferingsListed():
                on_offerings(state, step, event)
            case ev.InstancesListed():
                on_instances(state, step, event)
            case ev.ListFailed():
                on_list_failed(state, step, event)
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
                if state.agent_away_since is None:
                    state.agent_away_since = step.now
            case ev.ReplicaOrderFailed():
                on_order_failed(state, step, event)
            case ev.ReplicaOrderTaken():
                on_order_taken(state, step, event)
            case ev.DemandSampled():
                _on_demand(state, step, event)
            case ev.LoadSampled():
                state.loads = {load.replica_id: load.in_flight for load in event.loads}
                state.loads_at = step.now
            case ev.RequestsMoved():
                on_requests_moved(state, event)
            case ev.GatewayBegan():
                on_gateway_began(state)
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
            case ev.DrainRequested():
                on_drain_requested(state, step, event)
            case ev.UndrainRequested():
                on_undrain_requested(state, step, event)
            case ev.ScaleHeld():
                on_scale_held(state, step, event)
            case ev.HoldReleased():
                on_hold_released(state, step, event)
            case ev.AdoptRequested():
                on_adopt_requested(state, step, event)
            case ev.DayTold():
                start_day(state, event.began, event.ends)
            case ev.BootLogRead():
                on_boot_log(state, event)
            case ev.DrillRequested():
                _tell_drill(step, event)
            case ev.ReloadRefused():
                step.because("fleet", f"reload refused ({event.by}): {event.problem}")
            case _:
                assert_never(event)

    def _set_targets(self, step: Step) -> None:
        state = self._state
        for name, model in state.models.items():
            if state.down:
                model.target = ReplicaTarget(0, ("everything is being given back",))
                continue
            before = model.target.replicas if model.target is not None else model.remembered
            model.target = (
                held_target(model.spec, model.hold)
                if model.hold is not None
                else decide_target(
                    step.now, model.spec.scaling, model.demand, before, _service(state, model)
                )
            )
            if before != model.target.replicas:
                step.because(
                    f"model:{name}",
                    f"{before if before is not None else 'new'} → {model.target.replicas} "
                    f"replicas: {' → '.join(model.target.reasons)}",
                )

    def _publish(self, step: Step) -> None:
        current = self._routes.of(self._state, step)
        if current != self._published and (current or self._published is not None):
            self._published = current
            self._version += 1
            step.act(PublishTable(RoutingTable(self._epoch, self._version, current)))


def _service(state: State, model: ModelState) -> Service:
    live = state.fleet.replicas(COUNTED, model.spec.name)
    ready = [r.ready_at for r in live if r.ready_at is not None]
    starting = any(r.phase is ReplicaPhase.STARTING for r in live)
    placed = bool(live) and not model.unplaced and bool(state.fleet.nodes(NODE_COMING))
    coming = not ready and not model.failures and (starting or placed)
    return Service(min(ready, default=None), coming)


def _on_demand(state: State, step: Step, event: ev.DemandSampled) -> None:
    model = state.models.get(event.model)
    if model is not None:
        model.demand.sample(step.now, event.queued, event.in_flight, event.peak, event.arrivals)


def _tell_drill(step: Step, event: ev.DrillRequested) -> None:
    when = "at once" if event.notice is None else f"{event.notice:g} s after a notice"
    step.because(f"node:{event.node_id}", f"a drill takes its machine {when} (by {event.by})")


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
