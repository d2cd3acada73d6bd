"""One life of a controller: the real parts, put together as the controller does it.

What stands around them is the model's: the wire, the agent, the clock, and a ledger that is a real
file but does not wait for a disk. At each `point` of a life it may end, as by SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.core.codec import encode
from elasticd.core.events import DemandSampled, EndpointBroken, LoadSampled, ReplicaLoad
from elasticd.core.fleet import Row
from elasticd.runtime.agent_orders import AgentOrders
from elasticd.runtime.cluster_watch import ClusterWatch, PollTimes
from elasticd.runtime.days import Days
from elasticd.runtime.eternal import for_ever
from elasticd.runtime.executor import Executor
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import (
    JournalEntry,
    JournalLimits,
    Ledger,
    LedgerStore,
    LedgerWriteFailed,
)
from elasticd.runtime.ledger_copier import Copier
from elasticd.runtime.loop import ControlLoop
from elasticd.runtime.orders import EnginePorts, OrderMaker
from elasticd.runtime.ownership import check_ownership
from elasticd.runtime.performer import Identity, Performer
from elasticd.runtime.picture import Picture
from elasticd.runtime.pools import Pools
from elasticd.runtime.recorder import Recorder
from elasticd.runtime.reload import Reloader
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.state_lock import StateLock
from elasticd.runtime.table_holder import TableHolder
from elasticd.runtime.wiring import Wiring
from tests.model.around import Around
from tests.model.books import CLUSTER
from tests.model.cluster import Cluster
from tests.model.effects import USED
from tests.model.loop import Timers
from tests.model.watched_core import WatchedCore

Key = tuple[str, str]
"""Kind and id of a row."""

POLL = PollTimes(wait=5.0, late=10.0, retry=2.0, spacing=0.2)
SAMPLE_PERIOD = 5.0
"""Seconds between two reports of the gateway."""


class Clock:
    """The world's time, in every life."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def now(self) -> float:
        return self._timers.now


class QuickStore(LedgerStore):
    """The real store and file, without the waits for a disk and without the hourly copy."""

    def __init__(self, state_dir: Path) -> None:
        self._limits = JournalLimits(entries=200)
        self._core = ""
        self._path = state_dir / "ledger.sqlite"
        self._lock = StateLock(state_dir)
        self._open()
        self._db.execute("PRAGMA synchronous = OFF")
        self.copier = Copier(self._path)

    def read_only(self, yes: bool) -> None:
        """Whether the disk refuses every write."""
        self._db.execute(f"PRAGMA query_only = {int(yes)}")

    def unlock(self) -> None:
        """As the kernel does it for a process that has died."""
        self._lock.release()

    def rows(self) -> dict[tuple[str, str], str]:
        """Each row's document as it is written."""
        found = self._db.execute("SELECT kind, id, doc FROM rows")
        return {(kind, key): doc for kind, key, doc in found}

    def drop(self) -> None:
        """Lets go of the file when nobody needs it any more."""
        self._db.close()


@dataclass(slots=True)
class Doom:
    """Where the next life ends: at the `left`th time that it comes to the point `at`."""

    at: str = ""
    left: int = 0

    def strikes(self, name: str) -> bool:
        if name != self.at:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.at = ""
        return True


class Life:
    """From the ledger to the last task."""

    def __init__(self, around: Around, doom: Doom) -> None:
        self._around = around
        state_dir = around.state_dir
        self._loop = around.timers.loop
        self._doom = doom
        self.died_at = ""
        self.began = around.timers.now
        self.store = QuickStore(state_dir)
        restored = self.store.restored
        check_ownership(state_dir, around.wishes.spec, restored.rows)
        self.core = WatchedCore(
            restored.ledger_id, restored.epoch, restored.rows, around.books, around.cluster
        )
        self._clock = Clock(around.timers)
        self.inbox = Inbox()
        identity = Identity(CLUSTER, restored.ledger_id)
        self.pools = Pools(identity, state_dir, self._clock, self.inbox.put)
        orders = OrderMaker(lambda replica_id, incarnation: "key", EnginePorts())
        self.days = Days(around.wishes.day_starts, self._clock, self.inbox.put, around.wall)
        wiring = Wiring(
            *(around.wishes, identity, SourceFile(state_dir), self.pools),
            *(orders, self.inbox.put, self.days.set),
        )
        self._wiring = wiring
        agent = AgentOrders(_DoomedAgent(around.cluster, self.point), self._clock)
        self.tables = TableHolder(lambda replica_id, incarnation: "key")
        performer = Performer(
            identity,
            self.pools.providers,
            agent,
            orders,
            lambda pool, node_id, gpus: f"join {node_id}",
        )
        self.executor = Executor(performer, self.inbox.put)
        self.recorder = Recorder()
        self.recorder.begin(restored, self.core)
        self._ledger = Ledger(self.store, ThreadPoolExecutor(1))
        self.control = ControlLoop(
            *(self.core, self._clock, self.inbox, self),
            *(self.executor, self.tables.publish, self.recorder),
        )
        self.watch = ClusterWatch(agent, self._clock, self.inbox.put, POLL)
        self.picture = Picture(
            self.core, self._clock, restored, self.pools.providers, self._ledger.summary
        )
        self.reloader = Reloader(
            around.wishes, wiring.apply, self.picture.machines, self._clock, self.inbox.put
        )
        self.task = self._loop.create_task(self._live())
        self._parts: list[asyncio.Task[None]] = []
        self._broken: set[str] = set()
        self._compared: dict[tuple[str, ...], tuple[Any, Any]] = {}

    async def _live(self) -> None:
        self._wiring.apply(self._around.wishes)
        eternal = {
            "cluster watch": self.watch.run,
            "days": self.days.run,
            "pools": self.pools.run,
            "reload": self.reloader.run,
            "gateway": self._gateway,
        }
        async with asyncio.TaskGroup() as group:
            self._control_task = group.create_task(self.control.run())
            self._parts = [
                group.create_task(for_ever(name, part)) for name, part in eternal.items()
            ]

    async def stop(self) -> None:
        """In order, as by SIGTERM."""
        self.control.request_stop()
        await asyncio.wait({self._control_task})
        for part in self._parts:
            part.cancel()
        await asyncio.wait({self.task})
        await self.executor.aclose(3.0)
        await self.control.flush()
        await self.pools.aclose()
        await self._ledger.aclose()

    async def point(self, name: str) -> None:
        """Here it may die: then nothing of it goes on."""
        if self._loop.cut or self._doom.strikes(name):
            self.died_at = name
            self._loop.stop()
            await asyncio.Event().wait()

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """The ledger's, between two points; then the file must say what the core remembers."""
        await self.point("before commit")
        if self._around.commit_seconds:
            await asyncio.sleep(self._around.commit_seconds)
        try:
            await self._ledger.commit(at, rows, entries)
        except LedgerWriteFailed:
            USED["a commit fails"] += 1
            raise
        self._around.books.written.update(row.id for row in rows if row.kind == "node")
        self._compare()
        await self.point("after commit")

    def _compare(self) -> None:
        fleet = self.core.state.fleet
        wanted: dict[Key, Any] = dict(self.core.keeper._saved)
        wanted.update({("node", n.id): self._comparable(("node", n.id), n) for n in fleet.nodes()})
        for replica in fleet.replicas():
            key = ("replica", replica.id)
            wanted[key] = self._comparable(key, replica)
        written = {
            key: self._comparable((*key, "row"), doc) for key, doc in self.store.rows().items()
        }
        if wanted != written:
            differing = [
                f"{key}: {wanted.get(key)} / {written.get(key)}"
                for key in sorted({*wanted, *written})
                if wanted.get(key) != written.get(key)
            ]
            self._around.books.fail(f"the file is not what the core remembers: {differing}")

    def _comparable(self, key: tuple[str, ...], value: Any) -> Any:
        """A node or replica, or a row's text, as a restart would read it; made once for each."""
        known = self._compared.get(key)
        if known is None or (known[0] is not value and known[0] != value):
            doc = json.loads(value) if isinstance(value, str) else encode(value)
            known = (value, _asked_anew(doc) if key[0] in ("node", "replica") else doc)
            self._compared[key] = known
        return known[1]

    async def _gateway(self) -> None:
        """Another process, really: it counts requests and breaks off what is gone."""
        while True:
            for model, load in self._around.demand.items():
                self.inbox.put(DemandSampled(model, load, 0, load, load))
            table = self.tables.current
            endpoints = [e for m in table.models for e in m.endpoints] if table else []
            loads = tuple(ReplicaLoad(e.replica_id, 0) for e in endpoints)
            self.inbox.put(LoadSampled(loads))
            joined = self._around.cluster.joined()
            for endpoint in endpoints:
                replica_id = endpoint.replica_id
                if endpoint.node_id not in joined and replica_id not in self._broken:
                    self._broken.add(replica_id)
                    self.inbox.put(EndpointBroken(replica_id, endpoint.incarnation, "reset"))
            await asyncio.sleep(SAMPLE_PERIOD)


def _asked_anew(doc: dict[str, Any]) -> dict[str, Any]:
    """As it is after a restart: what was under way is a try without an answer."""
    attempts = doc.get("attempts", 0) + doc.get("launching", False)
    return {**doc, "asked_at": None, "launching": False, "attempts": attempts}


class _DoomedAgent:
    """The agent, with a point before and after each order."""

    def __init__(self, cluster: Cluster, point: Callable[[str], Any]) -> None:
        self._cluster = cluster
        self._point = point

    async def start(self, order: ReplicaOrder) -> None:
        await self._point("before start")
        await self._cluster.start(order)
        await self._point("after start")

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        await self._point("before stop")
        await self._cluster.stop(replica_id, incarnation, grace)
        await self._point("after stop")

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        return await self._cluster.state(incarnation, version, wait)
