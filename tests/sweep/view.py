"""What is seen of a fleet at one time, and what is missing in it until it is at rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tests.sweep.verdict import own_machines

CLUSTER = "swept"

Missing = Callable[["View"], str]
"""What a view lacks; empty: nothing."""


@dataclass(frozen=True, slots=True)
class View:
    """What really is, what the controller says (`None` where it says nothing), and the ids of
    machines that are not ours."""

    truth: Mapping[str, Any]
    status: Mapping[str, Any] | None
    foreign: Collection[str]

    @property
    def own(self) -> list[Mapping[str, Any]]:
        """Machines of ours that are there, or are still to come."""
        return own_machines(self.truth, CLUSTER, self.foreign)

    def count(self, operation: str) -> int:
        """How often the cloud was asked for something."""
        return int(self.truth["calls"]["counts"].get(operation, 0))

    def __str__(self) -> str:
        status = self.status or {}
        told = {key: status.get(key) for key in ("models", "nodes", "pools", "down", "recent")}
        machines = [(m["id"], m["name"], m["state"]) for m in self.own]
        return f"machines {machines}; status {told}"


def settled(wanted: int) -> Missing:
    """Exactly the machines that are wanted, each one a node's, and each with its replica."""

    def missing(view: View) -> str:
        if view.status is None or not view.status["models"]:
            return "an answer of the controller"
        [model] = view.status["models"]
        counts = {key: model[key] for key in ("wanted", "ready", "starting", "pending", "draining")}
        if list(counts.values()) != [wanted, wanted, 0, 0, 0]:
            return f"{wanted} ready replicas: {counts}"
        nodes = [node for node in view.status["nodes"] if node["phase"] != "gone"]
        if [node["phase"] for node in nodes] != ["ready"] * wanted:
            return f"{wanted} ready nodes"
        if any(pool["orphans"] for pool in view.status["pools"]):
            return "the end of orphans"
        there = {machine["id"] for machine in view.own}
        return "" if there == {n["instance_id"] for n in nodes} else "machines that are the nodes'"

    return missing


def given_back(view: View) -> str:
    """Nothing is left, and the controller says so."""
    down = view.status["down"] if view.status is not None else None
    if down is None or down["left"]:
        return f"everything to be given back: {down}"
    return f"the end of {[machine['id'] for machine in view.own]}" if view.own else ""
