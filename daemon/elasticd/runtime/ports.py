"""What the controller's shell needs of its neighbours, so that each can be replaced in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.core.actions import Plan
from elasticd.core.events import Event
from elasticd.core.fleet import Row


class Clock(Protocol):
    """Seconds since the epoch that only grow."""

    def now(self) -> float: ...


class ControlCore(Protocol):
    """The decision core: `elasticd.core.decide.Core`."""

    def step(self, now: float, events: Sequence[Event]) -> Plan: ...

    def changed_rows(self) -> list[Row]: ...

    def status(self, now: float) -> dict[str, Any]: ...


CoreFactory = Callable[[str, int, Sequence[Row]], ControlCore]
"""Makes the core from the ledger's id, the epoch and the rows of an earlier life."""


class Agent(Protocol):
    """The cluster agent: `elasticd.agent_api.client.AgentClient`.

    Raises `AgentUnreachable` (outcome unknown) and `AgentRefused` (the order is wrong).
    """

    async def start(self, order: ReplicaOrder) -> None: ...

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None: ...

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState: ...


class Emit(Protocol):
    """Where events go; never blocks."""

    def __call__(self, event: Event, /) -> None: ...
