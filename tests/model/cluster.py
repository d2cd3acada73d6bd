"""The agent and what it sees: the cloud's machines once they have joined, and engines on them.

Machines, engines and their states are functions of time, as in the cloud itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, NodeReport, ReplicaOrder, ReplicaReport
from elasticd_providers.fake.machines import Machine
from tests.model.books import CLUSTER, Known
from tests.model.effects import USED
from tests.model.loop import Timers

LOAD_SECONDS = 3.0
"""From an order until the engine is ready."""

REMEMBERED = 60.0
"""Seconds for which Ray tells of a dead machine."""

_LOOK_EVERY = 5.0
"""Seconds after which a long poll looks again in any case."""


@dataclass(slots=True)
class Engine:
    """One replica's engine. `broken`: what it died of."""

    order: ReplicaOrder
    since: float
    broken: str = ""


@dataclass(slots=True)
class Mood:
    """How the agent is. `until` when it is so."""

    kind: str = "well"
    until: float = 0.0


@dataclass(slots=True)
class Cluster:
    """Implements `Agent`. `machines` answers every machine that ever was."""

    timers: Timers
    machines: Callable[[], Iterable[Known]]
    engines: dict[str, Engine] = field(default_factory=dict)
    mismatched: set[str] = field(default_factory=set)
    gpuless: set[str] = field(default_factory=set)
    mood: Mood = field(default_factory=Mood)
    well_since: float = 0.0
    _life: int = 1
    _version: int = 0
    _shown: tuple[object, ...] = ()
    _changed: asyncio.Event | None = None
    _sleeping: str = ""

    @property
    def now(self) -> float:
        return self.timers.now

    # What a test may do.

    def be(self, kind: str, seconds: float) -> None:
        """`away`, `silent`, `incomplete`, `headless` or `forgetful`, for so long."""
        self.mood = Mood(kind, self.now + seconds)
        if kind == "forgetful":
            self._life += 1
            young = [r for r, e in self.engines.items() if self.now < e.since + LOAD_SECONDS]
            for replica_id in young[:1]:
                del self.engines[replica_id]
        self.poke()

    def recover(self) -> None:
        """Well, and every machine and engine too."""
        self.mood = Mood()
        self.gpuless.clear()
        self.poke()

    def poke(self) -> None:
        """Something has changed."""
        if self._changed is not None:
            self._changed.set()

    def joined(self) -> dict[str, Machine]:
        """The machine of each node that is in Ray: of two of one node the first."""
        found: dict[str, Machine] = {}
        for known in self._members():
            machine, node_id = known.machine, self._node_of(known)
            if machine.state(self.now) == "active" and node_id not in self.mismatched:
                found.setdefault(node_id, machine)
        return found

    def serving(self, node_id: str, for_seconds: float) -> bool:
        """Whether an engine there has been ready for so long."""
        return node_id in self.joined() and any(
            e.order.node_id == node_id and self._ready_for(e) >= for_seconds
            for e in self.engines.values()
        )

    # What the controller may ask.

    async def start(self, order: ReplicaOrder) -> None:
        await self._reach()
        if order.node_id in self.mismatched:
            raise AgentRefused(f"{order.node_id} is not in the cluster")
        self.engines.setdefault(order.replica_id, Engine(order, self.now))
        self.poke()

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        await self._reach()
        self.engines.pop(replica_id, None)
        self.poke()

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        """A long poll, as the agent's own."""
        end = self.now + wait
        while True:
            await self._reach()
            state = self._current()
            if (state.incarnation, state.version) != (incarnation, version) or self.now >= end:
                return state
            await self._until_changed(min(end, self.now + _LOOK_EVERY, self._next_change()))

    # How it is done.

    async def _reach(self) -> None:
        self._end_mood()
        if self.mood.kind == "away":
            USED["agent away"] += 1
            raise AgentUnreachable("connection refused")
        while self.mood.kind == "silent":
            USED["agent silent"] += 1
            await asyncio.sleep(max(0.1, self.mood.until - self.now))
            self._end_mood()

    def _end_mood(self) -> None:
        if self.mood.kind != "well":
            if self.now >= self.mood.until:
                self.mood = Mood()
            self.well_since = self.now

    async def _until_changed(self, when: float) -> None:
        changed = self._changed = asyncio.Event()
        try:
            async with asyncio.timeout(max(0.01, when - self.now)):
                await changed.wait()
        except TimeoutError:
            return

    def _next_change(self) -> float:
        now = self.now
        moments = [self.mood.until, *(e.since + LOAD_SECONDS for e in self.engines.values())]
        for known in self._members():
            moments += [t for t in (known.machine.active_at, known.machine.gone_at) if t]
        return min((m for m in moments if m > now), default=now + _LOOK_EVERY)

    def _current(self) -> ClusterState:
        self._end_mood()
        self._bury_engines()
        kind = self.mood.kind
        nodes, replicas = tuple(self._nodes()), tuple(self._replicas())
        if kind == "headless":
            USED["agent headless"] += bool(nodes)
            nodes = tuple(replace(n, alive=None) for n in nodes)
        elif kind == "lost its memory":
            USED["agent lost its memory"] += bool(nodes)
            nodes = replicas = ()
        complete = kind not in ("incomplete", "headless", "forgetful")
        if not complete:
            USED[f"agent {kind}"] += kind != "headless"
            replicas = replicas[1:]
        shown = (self._life, nodes, replicas, complete)
        if shown != self._shown:
            self._shown, self._version = shown, self._version + 1
        return ClusterState(
            f"life-{self._life}", self._version, complete, kind != "headless", nodes, replicas
        )

    def _members(self) -> list[Known]:
        return [
            k for k in self.machines() if k.identity is not None and k.identity.cluster == CLUSTER
        ]

    @staticmethod
    def _node_of(known: Known) -> str:
        return known.identity.node_id if known.identity is not None else ""

    def _nodes(self) -> Iterable[NodeReport]:
        now, joined = self.now, self.joined()
        told: dict[str, NodeReport] = {}
        for known in self._members():
            machine, node_id = known.machine, self._node_of(known)
            booted = machine.active_at is not None and now >= machine.active_at
            if node_id in joined:
                told[node_id] = self._alive(node_id, joined[node_id])
            elif machine.costs(now) and booted and node_id in self.mismatched:
                USED["mismatch"] += 1
                told[node_id] = NodeReport(node_id, None, mismatch="Ray 2.59.0, the head's 2.60.0")
            elif machine.costs(now) and machine.boot_fails:
                told[node_id] = NodeReport(node_id, None, boot="failed: no usable device")
            elif booted and machine.gone_at is not None and now < machine.gone_at + REMEMBERED:
                told[node_id] = NodeReport(node_id, False, boot="up")
        return told.values()

    def _alive(self, node_id: str, machine: Machine) -> NodeReport:
        if node_id in self.gpuless:
            USED["gpus hidden"] += 1
        gpus = 0 if node_id in self.gpuless else machine.gpu_count
        return NodeReport(node_id, True, gpus=gpus, boot="up", address=machine.address)

    def _bury_engines(self) -> None:
        """Engines go with their machines."""
        joined = self.joined()
        for replica_id, engine in list(self.engines.items()):
            machine = joined.get(engine.order.node_id)
            was_there = any(
                self._node_of(k) == engine.order.node_id and k.machine.gone_at is not None
                for k in self._members()
            )
            if machine is None and was_there:
                del self.engines[replica_id]

    def _ready_for(self, engine: Engine) -> float:
        """Seconds; less than 0: not yet."""
        machine = self.joined().get(engine.order.node_id)
        if machine is None or machine.active_at is None or engine.broken:
            return -1.0
        return self.now - (max(engine.since, machine.active_at) + LOAD_SECONDS)

    def _replicas(self) -> Iterable[ReplicaReport]:
        for replica_id, engine in self.engines.items():
            order, ready = engine.order, self._ready_for(engine) >= 0.0
            phase = "stopped" if engine.broken else "ready" if ready else "starting"
            yield ReplicaReport(
                replica_id,
                order.incarnation,
                order.node_id,
                order.model,
                order.spec_hash,
                phase,
                url=f"http://{order.host}/{replica_id}" if ready else "",
                error=engine.broken,
            )
