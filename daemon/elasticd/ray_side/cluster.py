"""What the agent needs of a Ray cluster, as an interface: Ray stands behind it, or a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elasticd.agent_api.messages import ReplicaOrder


class HeadAway(Exception):
    """The head does not answer, or not to us; the message says what is wrong."""


class ActorSilent(Exception):
    """The actor did not answer: nothing is known of it now."""


class ActorGone(Exception):
    """The actor is dead; the message is the cause."""


class DriverLost(Exception):
    """This process can no longer serve as Ray driver: end it and attach anew."""


@dataclass(frozen=True, slots=True)
class RayNode:
    """One of our machines in Ray's eyes. `draining`: it takes nothing new and cannot go back, also
    when that has made an end of it."""

    node_id: str
    ray_node_id: str
    alive: bool
    address: str
    gpus: int
    draining: bool = False


class Cluster(Protocol):
    """One Ray cluster. Every call is bounded in time; actors are named as in `names`."""

    async def attach(self) -> None:
        """Makes this process a driver. Raises `HeadAway`, `DriverLost`."""

    async def nodes(self) -> Sequence[RayNode]:
        """All nodes with our label, dead ones too. Raises `HeadAway`, `DriverLost`."""

    async def names(self) -> Sequence[str]:
        """Names of all living actors of our namespace. Raises `HeadAway`."""

    async def create(self, order: ReplicaOrder) -> None:
        """Makes the actor, or finds it made. Returns before it is placed. Raises `HeadAway`."""

    async def start(self, order: ReplicaOrder) -> None:
        """Gives the actor its order; waits, unbounded, until it is placed. Raises `ActorGone`."""

    async def state(self, name: str) -> Mapping[str, Any]:
        """The actor's report as JSON. Raises `ActorSilent`, `ActorGone`."""

    async def stop(self, name: str, grace: float) -> None:
        """Orders the engine's end. Raises `ActorSilent`, `ActorGone`."""

    async def kill(self, name: str) -> None:
        """Ends the actor and with it everything of the engine. Raises `HeadAway`."""

    async def drain(self, ray_node_id: str, reason: str) -> None:
        """Ray's own drain, which cannot be undone. Raises `HeadAway`."""

    async def aclose(self) -> None:
        """Lets go of the cluster; actors stay."""
