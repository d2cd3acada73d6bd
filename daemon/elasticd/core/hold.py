"""Holding a model at a number of replicas, on an operator's word."""

from __future__ import annotations

from elasticd.core.events import HoldReleased, ScaleHeld
from elasticd.core.scaling import ReplicaTarget
from elasticd.core.specs import ModelSpec
from elasticd.core.state import Hold, State, Step


def on_scale_held(state: State, step: Step, event: ScaleHeld) -> None:
    """From now on the autoscaler leaves this model alone."""
    model = state.models.get(event.model)
    if model is None:
        return
    until = None if event.seconds is None else step.now + event.seconds
    model.hold = Hold(event.replicas, until, event.by)
    model.give_another_chance()
    told = "until released" if event.seconds is None else f"for {event.seconds:g} s"
    step.because(f"model:{event.model}", f"held at {event.replicas} {told} ({event.by})")


def on_hold_released(state: State, step: Step, event: HoldReleased) -> None:
    """The autoscaler goes on from what there is now."""
    model = state.models.get(event.model)
    if model is not None and model.hold is not None:
        model.hold = None
        step.because(f"model:{event.model}", f"no longer held ({event.by})")


def pass_holds(state: State, step: Step) -> None:
    """Releases what was held for a while only."""
    for name, model in state.models.items():
        hold = model.hold
        if hold is not None and hold.until is not None and step.due(hold.until):
            model.hold = None
            step.because(f"model:{name}", f"no longer held at {hold.replicas}: its time is over")


def held_target(spec: ModelSpec, hold: Hold) -> ReplicaTarget:
    """What the operator said, within what the configuration allows at most."""
    target = ReplicaTarget(hold.replicas, (f"held at {hold.replicas} by {hold.by}",))
    return target.at_most(spec.scaling.max_replicas, "max_replicas")
