"""Neighbours of the controller's shell that do as the test says and remember it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.core.actions import LaunchNode, Plan, StartReplica, StopReplica, TerminateNode
from elasticd.core.events import Event
from elasticd.core.fleet import Row
from elasticd.core.specs import Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd.provider import (
    Instance,
    InstanceState,
    LaunchRequest,
    Market,
    NoticeWithdrawn,
    Offering,
    PreemptionNotice,
)
from elasticd.routing_table import Endpoint, ModelRoute, RoutingTable, Tier

OFFERING = Offering("lab", "here", "mini", "CPU", 1, Market.SPOT, 1_000_000)
INSTANCE = Instance("i-1", "node-1", "ledger", InstanceState.RUNNING, OFFERING, "127.0.0.1")
LAUNCH = LaunchNode("node-1", "lab", (OFFERING,))
TERMINATE = TerminateNode("node-1", "lab", "i-1")
START = StartReplica("replica-1", 1, "node-1", "tiny", "hash", 1, "127.0.0.1")
STOP = StopReplica("replica-1", 1, 5.0)
NOTHING = Plan((), (), None)


def fleet_spec(**scaling: Any) -> FleetSpec:
    model = ModelSpec(
        name="tiny",
        source="file:/models/tiny",
        engine=Engine("command", argv=("serve", "{port}")),
        spec_hash="hash",
        gpus_per_replica=1,
        pools=("lab",),
        scaling=Scaling(**scaling),
    )
    return FleetSpec(
        "test", (model,), (NodePool("lab", "fake", max_nodes=4, visibility_grace=0.0),)
    )


def table(version: int, epoch: int = 1) -> RoutingTable:
    endpoint = Endpoint("replica-1", 1, "http://127.0.0.1:1", "", 4, Tier.OPEN, "node-1", "hash")
    return RoutingTable(epoch, version, (ModelRoute("tiny", (endpoint,), 10.0, 10),))


class FakeProvider:
    """Answers with `answers[operation]`: an exception is raised, a callable is awaited."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "offerings": (OFFERING,),
            "instances": (INSTANCE,),
            "launch": INSTANCE,
            "terminate": None,
            "aclose": None,
            **answers,
        }
        self.asked: list[tuple[str, Any]] = []

    async def offerings(self) -> Sequence[Offering]:
        return await self._answer("offerings", None)

    async def launch(self, request: LaunchRequest) -> Instance:
        return await self._answer("launch", request)

    async def terminate(self, instance_id: str) -> None:
        await self._answer("terminate", instance_id)

    async def instances(self) -> Sequence[Instance]:
        return await self._answer("instances", None)

    async def aclose(self) -> None:
        await self._answer("aclose", None)

    def count(self, operation: str) -> int:
        return sum(asked == operation for asked, _ in self.asked)

    async def _answer(self, operation: str, argument: Any) -> Any:
        self.asked.append((operation, argument))
        answer = self.answers[operation]
        if isinstance(answer, list):  # one after the other, the last one for ever
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer


class FakeSpotProvider(FakeProvider):
    """One that also hears of preemptions and can be told to take a machine away."""

    def __init__(self, *notices: Any, **answers: Any) -> None:
        super().__init__(**{"reclaim": None, **answers})
        self._notices = notices

    async def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]:
        self.asked.append(("notices", None))
        for notice in self._notices:
            if isinstance(notice, Exception):
                raise notice
            yield notice

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        await self._answer("reclaim", (instance_id, notice))


async def hang() -> Any:
    """An answer that never comes."""
    await asyncio.Event().wait()


class FakeAgent:
    """Takes orders, or fails with `error`; `states` are answered in turn, the last one for ever."""

    def __init__(self, *states: Any, error: Exception | None = None) -> None:
        self._states = list(states)
        self._error = error
        self.orders: list[tuple[str, Any]] = []
        self.polls: list[tuple[str, int, float]] = []

    async def start(self, order: ReplicaOrder) -> None:
        await self._take("start", order)

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        await self._take("stop", (replica_id, incarnation, grace))

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        self.polls.append((incarnation, version, wait))
        answer = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer

    async def _take(self, order: str, what: Any) -> None:
        self.orders.append((order, what))
        if self._error is not None:
            raise self._error


class ScriptedCore:
    """Decides what `decide` says; remembers every step."""

    def __init__(self, decide: Callable[[float, Sequence[Event]], Plan]) -> None:
        self._decide = decide
        self.steps: list[tuple[float, tuple[Event, ...]]] = []
        self.rows: list[Row] = []
        self.picture: dict[str, Any] = {}

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        self.steps.append((now, tuple(events)))
        return self._decide(now, events)

    def changed_rows(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def status(self, now: float) -> dict[str, Any]:
        return {"at": now, **self.picture}


class Diary:
    """A ledger, an executor and a publisher that write down who was called when."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []
        self.commit_error: Exception | None = None

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[Any]) -> None:
        await asyncio.sleep(0.005)
        self.lines.append(("commit", (tuple(rows), tuple(entries))))
        if self.commit_error is not None:
            raise self.commit_error

    def start(self, actions: Iterable[Any]) -> None:
        self.lines.extend(("start", action) for action in actions)

    def publish(self, table: RoutingTable) -> None:
        self.lines.append(("publish", table.version))

    def said(self, what: str) -> list[Any]:
        return [told for name, told in self.lines if name == what]
