"""A whole controller shell over a vendor, in virtual time: as many lives as a test wants.

Loop, ledger on a disk, executor, provider wrapper, watches and core are the daemon's own. The
cluster is played: a machine that runs joins after its boot time, an engine is ready when it is
ordered. What the gateway would be told is kept, so that a test sees what serves.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor as ThreadsOrProcesses
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.core.decide import Core
from elasticd.core.events import (
    ClusterObserved,
    Configured,
    Event,
    NodeSeen,
    ReplicaSeen,
    ScaleHeld,
)
from elasticd.core.specs import Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd.routing_table import RoutingTable, Tier
from elasticd.runtime.executor import Executor
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import Ledger
from elasticd.runtime.loop import ControlLoop
from elasticd.runtime.orders import EnginePorts, OrderMaker
from elasticd.runtime.performer import Identity, Performer
from elasticd.runtime.pools import Pools
from elasticd.runtime.recorder import Recorder
from tests.cases.vendor import CLUSTER, POOL, Machine, Vendor
from tests.runtime.virtual import LoopClock, VirtualLoop, settle

MODEL = "model"
REPORT_EVERY = 5.0
"""Seconds between two reports of the cluster, if a test says nothing else."""


class InlineLoop(VirtualLoop):
    """What would go to a thread is done at once: virtual time knows no other clock."""

    def run_in_executor(  # type: ignore[override]
        self, executor: ThreadsOrProcesses | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test in virtual time, the disk's included."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=InlineLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class Cluster:
    """`joins` says which of the machines that run are seen in the cluster."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._engines: dict[str, ReplicaOrder] = {}
        self.joins: Callable[[Machine], bool] = lambda machine: True

    async def start(self, order: ReplicaOrder) -> None:
        self._engines.setdefault(order.replica_id, order)

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        self._engines.pop(replica_id, None)

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        raise NotImplementedError

    def seen(self) -> ClusterObserved:
        """What the agent reports; an engine dies with its machine."""
        there = {m.node_id for m in self._vendor.machines() if m.running and self.joins(m)}
        self._engines = {r: o for r, o in self._engines.items() if o.node_id in there}
        return ClusterObserved(
            nodes=tuple(NodeSeen(node_id, True, 1, "up", (), ()) for node_id in sorted(there)),
            replicas=tuple(
                ReplicaSeen(o.replica_id, o.incarnation, o.node_id, "ready", f"http://{o.node_id}")
                for o in self._engines.values()
            ),
            complete=True,
            detail="",
        )


class Life:
    """One model of `wanted` replicas, one GPU each, on one pool with `limits`.

    Enter `living` for one life of the controller; leaving it is as sudden as a kill.
    """

    def __init__(self, folder: Path, vendor: Vendor, wanted: int = 3, **limits: Any) -> None:
        self._folder = folder
        self.vendor = vendor
        self.clock = LoopClock(1_700_000_000.0)
        self.cluster = Cluster(vendor)
        model = ModelSpec(
            name=MODEL,
            source="file:/m",
            engine=Engine("vllm"),
            spec_hash="hash",
            gpus_per_replica=1,
            pools=(POOL,),
            scaling=Scaling(wanted, 200),
        )
        limits = {"max_nodes": 200, **limits}
        self.fleet = FleetSpec(CLUSTER, (model,), (NodePool(POOL, "vendor", **limits),))
        self.open_endpoints: list[tuple[float, int]] = []
        self.report_every = REPORT_EVERY

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Life]:
        """A controller on what the lives before have left."""
        ledger = await Ledger.open(self._folder / "state")
        parts = self._build(ledger)
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            await settle()
            yield self
            assert not [task for task in tasks if task.done()], self.loop.health.problem
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._executor.aclose()
            await self.pools.aclose()
            await ledger.aclose()

    def _build(self, ledger: Ledger) -> list[Coroutine[Any, Any, None]]:
        restored = ledger.restored
        self.ledger_id = restored.ledger_id
        self._inbox = Inbox()
        identity = Identity(CLUSTER, restored.ledger_id)
        self.pools = Pools(identity, self._folder / "state", self.clock, self.emit)
        orders = OrderMaker(lambda replica_id, incarnation: "key", EnginePorts())
        orders.learn(self.fleet)
        performer = Performer(
            identity,
            self.pools.providers,
            self.cluster,
            orders,
            lambda pool, node_id, gpus: "script",
        )
        self._executor = Executor(performer, self.emit)
        self.core = Core(restored.ledger_id, restored.epoch, restored.rows)
        recorder = Recorder()
        recorder.begin(restored, self.core)
        self.loop = ControlLoop(
            self.core, self.clock, self._inbox, ledger, self._executor, self._publish, recorder
        )
        self.emit(Configured(self.fleet))
        self.pools.apply(self.pools.prepare(self.fleet, {POOL: self.vendor.pool()}))
        return [self.loop.run(), self.pools.run(), self._report()]

    def emit(self, event: Event) -> None:
        self._inbox.put(event)

    def hold(self, replicas: int) -> None:
        """People want so many replicas from now on."""
        self.emit(ScaleHeld(MODEL, replicas, None, "test"))

    async def _report(self) -> None:
        while True:
            self.emit(self.cluster.seen())
            await asyncio.sleep(self.report_every)

    def _publish(self, table: RoutingTable) -> None:
        endpoints = [e for model in table.models for e in model.endpoints]
        count = sum(endpoint.tier is Tier.OPEN for endpoint in endpoints)
        self.open_endpoints.append((self.clock.now(), count))

    @property
    def serving(self) -> int:
        """Endpoints that take requests now."""
        return self.open_endpoints[-1][1] if self.open_endpoints else 0

    def fewest_serving(self, since: float) -> int:
        """The fewest there have been since then."""
        before = [count for at, count in self.open_endpoints if at <= since][-1:]
        return min(before + [count for at, count in self.open_endpoints if at > since], default=0)

    def status(self) -> dict[str, Any]:
        return self.core.status(self.clock.now())

    def pool_status(self) -> dict[str, Any]:
        [pool] = self.status()["pools"]
        return dict(pool)

    def troubles(self) -> dict[str, dict[str, Any]]:
        """What people are told of the pool's troubles, by kind."""
        return {trouble["kind"]: trouble for trouble in self.pool_status()["troubles"]}

    def nodes(self, *phases: str) -> list[dict[str, Any]]:
        return [node for node in self.status()["nodes"] if not phases or node["phase"] in phases]

    async def until(self, holds: Callable[[], Any], what: str, limit: float = 600.0) -> float:
        """Seconds until it holds; fails after `limit`."""
        began = self.clock.now()
        while not holds():
            waited = self.clock.now() - began
            assert waited < limit, f"not within {limit:g} s: {what}\n{self.status()}"
            await asyncio.sleep(1.0)
        return self.clock.now() - began

    async def until_serving(self, count: int, limit: float = 600.0) -> float:
        """Seconds until exactly so many machines are paid for and all of them serve."""
        return await self.until(
            lambda: self.serving == len(self.vendor.paid()) == count, f"{count} serve", limit
        )
