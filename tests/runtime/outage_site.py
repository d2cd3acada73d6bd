"""A controller's shell around the real core, two clouds and a cluster, all in virtual time.

Everything between the core and a provider is the daemon's own; the ledger takes 5 ms a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import (
    ClusterObserved,
    Configured,
    Event,
    InstancesListed,
    NodeSeen,
    ReplicaSeen,
    ScaleHeld,
)
from elasticd.core.fleet import Row
from elasticd.core.specs import Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd.provider import (
    Instance,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    Market,
    Offering,
    PoolContext,
    ProviderPlugin,
)
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.executor import Executor
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.loop import ControlLoop
from elasticd.runtime.orders import EnginePorts, OrderMaker
from elasticd.runtime.performer import Identity, Performer
from elasticd.runtime.pools import Pools
from tests.runtime.virtual import LoopClock

LEDGER = "ledger0123456789"
REPORT_EVERY = 2.0


class Cloud:
    """Machines of one pool. `fault` is what every call meets: an error, or `hang`."""

    def __init__(self, name: str) -> None:
        self.offering = Offering(name, "here", "mini", "L4", 1, Market.SPOT, 100_000)
        self.machines: dict[str, Instance] = {}
        self.asked: list[tuple[float, str]] = []
        self.fault: Exception | str | None = None
        self.only: str = ""

    def create(self, context: PoolContext, options: Any) -> Cloud:
        return self

    def calls(self, operation: str, since: float = 0.0) -> int:
        return sum(at >= since and asked == operation for at, asked in self.asked)

    async def offerings(self) -> Sequence[Offering]:
        await self._meet("offerings")
        return (self.offering,)

    async def launch(self, request: LaunchRequest) -> Instance:
        await self._meet("launch")
        instance = Instance(
            f"i-{request.node_id}",
            request.node_id,
            request.ledger_id,
            InstanceState.RUNNING,
            self.offering,
            "127.0.0.1",
        )
        return self.machines.setdefault(request.node_id, instance)

    async def terminate(self, instance_id: str) -> None:
        await self._meet("terminate")
        if self.machines.pop(instance_id.removeprefix("i-"), None) is None:
            raise InstanceNotFound(instance_id)

    async def instances(self) -> Sequence[Instance]:
        await self._meet("instances")
        return tuple(self.machines.values())

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _meet(self, operation: str) -> None:
        self.asked.append((asyncio.get_running_loop().time(), operation))
        if self.only and operation != self.only:
            return
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault == "hang":
            await asyncio.Event().wait()


class SpotCloud(Cloud):
    """One whose stream of notices breaks with the rest."""

    async def notices(self) -> AsyncIterator[Any]:
        await self._meet("notices")
        await asyncio.Event().wait()
        yield None


class Cluster:
    """Every machine joins, every engine is ready at once."""

    def __init__(self, clouds: Sequence[Cloud]) -> None:
        self._clouds = clouds
        self._engines: dict[str, ReplicaOrder] = {}

    async def start(self, order: ReplicaOrder) -> None:
        self._engines.setdefault(order.replica_id, order)

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        self._engines.pop(replica_id, None)

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        raise NotImplementedError

    def seen(self) -> ClusterObserved:
        nodes = [node_id for cloud in self._clouds for node_id in cloud.machines]
        return ClusterObserved(
            nodes=tuple(NodeSeen(node_id, True, 1, "up", (), ()) for node_id in nodes),
            replicas=tuple(
                ReplicaSeen(
                    o.replica_id, o.incarnation, o.node_id, "ready", url=f"http://{o.node_id}"
                )
                for o in self._engines.values()
                if o.node_id in nodes
            ),
            complete=True,
            detail="",
        )


class TimedCore(Core):
    """Notes how long each event has waited for its step."""

    def __init__(self) -> None:
        super().__init__(LEDGER, 1, ())
        self.waited: list[float] = []
        self.put_at: dict[int, float] = {}

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        at = asyncio.get_running_loop().time()
        self.waited.extend(at - self.put_at.pop(id(event)) for event in events)
        return super().step(now, events)


class Site:
    """One model per pool, named after it, of as many replicas as `replicas` says."""

    def __init__(self, state_dir: Path, clouds: dict[str, Cloud], replicas: int) -> None:
        self.clouds = clouds
        self.clock = LoopClock()
        self.core = TimedCore()
        self.inbox = Inbox()
        self.lists: list[tuple[float, str]] = []
        self._replicas = replicas
        identity = Identity("test", LEDGER)
        self.pools = Pools(identity, state_dir, self.clock, self.emit)
        self.cluster = Cluster(list(clouds.values()))
        self._orders = OrderMaker(lambda replica_id, incarnation: "key", EnginePorts())
        performer = Performer(
            identity,
            self.pools.providers,
            self.cluster,
            self._orders,
            lambda pool, node_id, gpus: "",
        )
        self.executor = Executor(performer, self.emit)
        self.loop = ControlLoop(
            self.core, self.clock, self.inbox, self, self.executor, lambda table: None
        )

    @property
    def fleet(self) -> FleetSpec:
        models = tuple(
            ModelSpec(
                name=name,
                source="file:/m",
                engine=Engine("vllm"),
                spec_hash=f"hash-{name}",
                gpus_per_replica=1,
                pools=(name,),
                scaling=Scaling(self._replicas, 100),
            )
            for name in self.clouds
        )
        return FleetSpec("test", models, tuple(NodePool(n, "fake", 100) for n in self.clouds))

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[Any]) -> None:
        """The ledger."""
        await asyncio.sleep(0.005)

    def emit(self, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        self.core.put_at[id(event)] = now
        if isinstance(event, InstancesListed):
            self.lists.append((now, event.pool))
        self.inbox.put(event)

    def hold(self, model: str, replicas: int) -> None:
        self.emit(ScaleHeld(model, replicas, None, "test"))

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Site]:
        fleet = self.fleet
        self._orders.learn(fleet)
        configs = {
            name: PoolConfig(ProviderPlugin(object, cloud.create), None)
            for name, cloud in self.clouds.items()
        }
        self.emit(Configured(fleet))
        self.pools.apply(self.pools.prepare(fleet, configs))
        parts = [self.loop.run(), self.pools.run(), self._report()]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.executor.aclose()
            await self.pools.aclose()

    async def _report(self) -> None:
        while True:
            self.emit(self.cluster.seen())
            await asyncio.sleep(REPORT_EVERY)

    def status(self) -> dict[str, Any]:
        return self.core.status(self.clock.now())

    def ready(self, model: str) -> int:
        return next((m["ready"] for m in self.status()["models"] if m["name"] == model), 0)

    async def until(self, holds: Any, limit: float = 600.0) -> float:
        """Seconds it took; fails after `limit`."""
        now = asyncio.get_running_loop().time
        began = now()
        while not holds():
            assert now() - began < limit, self.status()
            await asyncio.sleep(0.5)
        return now() - began


def waits(values: Sequence[float]) -> dict[str, float]:
    """Seconds."""
    return {"count": len(values), "median": median(values), "max": max(values)}


def gaps(site: Site, pool: str, since: float) -> list[float]:
    """Seconds between two lists of a pool."""
    times = [at for at, name in site.lists if name == pool and at >= since]
    return [after - before for before, after in pairwise(times)]


async def hung_provider(state_dir: Path) -> dict[str, Any]:
    """A provider that accepts and never answers for ten minutes, beside a healthy one: what the
    rest notices of it, in seconds of virtual time."""
    site = Site(state_dir, {"stuck": Cloud("stuck"), "well": Cloud("well")}, replicas=2)
    stuck, well = site.clouds["stuck"], site.clouds["well"]
    now = asyncio.get_running_loop().time
    async with site.living():
        await site.until(lambda: site.ready("stuck") == site.ready("well") == 2)
        await asyncio.sleep(60.0)
        began, before = now(), len(site.core.waited)
        rounds = site.loop.health.rounds
        stuck.fault = "hang"
        site.hold("stuck", 4)
        site.hold("well", 5)
        grown = await site.until(lambda: site.ready("well") == 5)
        launches = well.calls("launch", began)
        await asyncio.sleep(240.0)
        site.hold("well", 2)
        shrunk = await site.until(lambda: len(well.machines) == 2)
        await asyncio.sleep(began + 600.0 - now())
        figures = {
            "seconds": now() - began,
            "rounds": site.loop.health.rounds - rounds,
            "step_wait": waits(site.core.waited[before:]),
            "round_longest": site.loop.health.summary()["round_longest"],
            "lists_of_the_other": waits(gaps(site, "well", began)),
            "seconds_to_three_more_machines": grown,
            "launches_of_the_other": launches,
            "seconds_to_three_fewer_machines": shrunk,
            "terminates_of_the_other": well.calls("terminate", began),
            "calls_to_the_hung": len([1 for at, _ in stuck.asked if at >= began]),
            "hung_calls_at_the_end": site.pools.providers["stuck"].health()["under_way"],
            "hung_ready": site.ready("stuck"),
            "trouble": site.pools.providers["stuck"].health()["failing"],
            "problem": site.loop.health.problem,
        }
        stuck.fault = None
        figures["seconds_to_recover"] = await site.until(lambda: site.ready("stuck") == 4)
    return figures


@contextlib.contextmanager
def down(cloud: Cloud, fault: Exception, only: str = "") -> Any:
    """The cloud answers every call (or only one kind) with the fault."""
    cloud.fault, cloud.only = fault, only
    try:
        yield
    finally:
        cloud.fault = None
