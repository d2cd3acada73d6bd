"""A small world for the core: a provider with a list, an agent with replicas, all by hand.

It does what the core asks when told to, and answers with the events the shell would give. Time
is a number; nothing here sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticd.core.actions import (
    Action,
    LaunchNode,
    Plan,
    PublishTable,
    StartReplica,
    StopReplica,
    TerminateNode,
)
from elasticd.core.decide import Core
from elasticd.core.events import (
    ClusterObserved,
    Configured,
    DemandSampled,
    Event,
    InstancesListed,
    LaunchAnswered,
    LaunchFailed,
    LoadSampled,
    NodeSeen,
    NoticeSeen,
    OfferingsListed,
    ReplicaLoad,
    ReplicaOrderTaken,
    ReplicaSeen,
    TerminateAnswered,
)
from elasticd.core.fleet import Row
from elasticd.core.specs import Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd.provider import Instance, InstanceState, Market, Offering
from elasticd.routing_table import ModelRoute, RoutingTable

LEDGER = "ledger0123456789"


def offering(
    pool: str = "spot", zone: str = "a", price: float = 0.5, gpus: int = 1, kind: str = "L4"
) -> Offering:
    """A spot offering of `gpus` GPUs at `price` USD an hour."""
    return Offering(pool, zone, f"m{gpus}", kind, gpus, Market.SPOT, round(price * 1e6))


def model(name: str = "m", **changes: object) -> ModelSpec:
    """A model of one GPU; `min_replicas` and the like go to its scaling."""
    scaling_keys = set(Scaling.__dataclass_fields__)
    scaling = {k: v for k, v in changes.items() if k in scaling_keys}
    rest = {k: v for k, v in changes.items() if k not in scaling_keys}
    base: dict[str, object] = {
        "name": name,
        "source": "file:/m",
        "engine": Engine("vllm"),
        "spec_hash": f"hash-{name}",
        "gpus_per_replica": 1,
        "pools": ("spot",),
        "scaling": Scaling(**scaling),  # type: ignore[arg-type]
    }
    return ModelSpec(**{**base, **rest})  # type: ignore[arg-type]


def pool(name: str = "spot", max_nodes: int = 4, **changes: object) -> NodePool:
    """A pool of the fake provider."""
    return NodePool(name=name, provider="fake", max_nodes=max_nodes, **changes)  # type: ignore[arg-type]


class World:
    """One core, one provider, one agent. `pending` holds actions nobody has carried out yet."""

    def __init__(
        self,
        models: Sequence[ModelSpec] = (),
        pools: Sequence[NodePool] = (),
        offerings: Sequence[Offering] = (),
    ) -> None:
        self.spec = FleetSpec("c", tuple(models or [model()]), tuple(pools or [pool()]))
        self.offerings = tuple(offerings or [offering()])
        self.now = 1000.0
        self.epoch = 1
        self.core = Core(LEDGER, 1)
        self.rows: dict[tuple[str, str], Row] = {}
        self.pending: list[Action] = []
        self.log: list[Plan] = []
        self.table = RoutingTable(0, 0, ())
        self.instances: dict[str, Instance] = {}
        self.launched: dict[str, list[str]] = {}
        self.joined: set[str] = set()
        self.replicas: dict[str, ReplicaSeen] = {}
        self.gpuless: set[str] = set()
        self.held: dict[str, tuple[str, ...]] = {}
        self.notices: dict[str, tuple[NoticeSeen, ...]] = {}
        self.twins = 0

    def step(self, *events: Event) -> Plan:
        """One step of the core; its orders wait in `pending`, its table is taken at once."""
        plan = self.core.step(self.now, events)
        for row in self.core.changed_rows():
            if row.doc is None:
                self.rows.pop((row.kind, row.id), None)
            else:
                self.rows[row.kind, row.id] = row
        self.log.append(plan)
        for action in plan.actions:
            if isinstance(action, PublishTable):
                self.table = action.table
            else:
                self.pending.append(action)
        return plan

    def start(self) -> Plan:
        """Configuration, offerings and first lists."""
        return self.step(Configured(self.spec), *self.listings())

    def listings(self) -> list[Event]:
        """Complete and true lists of every pool."""
        events: list[Event] = []
        for p in self.spec.pools:
            own = tuple(o for o in self.offerings if o.pool == p.name)
            here = tuple(
                i
                for i in self.instances.values()
                if i.offering is not None and i.offering.pool == p.name
            )
            events += [OfferingsListed(p.name, own), InstancesListed(p.name, here)]
        return events

    def restart(self) -> None:
        """The controller dies with what it had in memory; what is in the rows remains."""
        self.epoch += 1
        self.pending.clear()
        self.core = Core(LEDGER, self.epoch, list(self.rows.values()))
        self.step(Configured(self.spec))

    def carry_out(self, action: Action) -> Event | None:
        """Does one thing in the world; the answer, if there is one."""
        match action:
            case LaunchNode():
                return self._launch(action)
            case TerminateNode():
                self.joined.discard(action.node_id)
                found = self.instances.pop(action.instance_id, None)
                if found is not None:
                    self.kill_replicas(found.node_id or "")
                return TerminateAnswered(action.node_id, action.instance_id, found is None)
            case StartReplica():
                if action.node_id in self.joined and action.replica_id not in self.replicas:
                    self.replicas[action.replica_id] = ReplicaSeen(
                        action.replica_id, action.incarnation, action.node_id, "starting"
                    )
                return ReplicaOrderTaken(action.replica_id, action.incarnation, "start")
            case StopReplica():
                self.replicas.pop(action.replica_id, None)
                return ReplicaOrderTaken(action.replica_id, action.incarnation, "stop")
            case _:
                return None

    def _launch(self, action: LaunchNode) -> Event:
        self.launched.setdefault(action.node_id, [])
        for earlier in self.launched[action.node_id]:
            if earlier in self.instances:
                return LaunchAnswered(action.node_id, self.instances[earlier])
        if self.launched[action.node_id]:
            return LaunchFailed(action.node_id, "InstanceNotFound", "it has ended", True)
        instance = Instance(
            f"i-{len(self.launched)}",
            action.node_id,
            LEDGER,
            InstanceState.RUNNING,
            action.offerings[0],
            "10.0.0.1",
        )
        self.launched[action.node_id].append(instance.instance_id)
        self.instances[instance.instance_id] = instance
        return LaunchAnswered(action.node_id, instance)

    def boot_all(self) -> None:
        """Every machine there is joins Ray."""
        self.joined = {i.node_id for i in self.instances.values() if i.node_id}

    def load_all(self) -> None:
        """Every starting engine becomes healthy."""
        for rid, seen in self.replicas.items():
            self.replicas[rid] = ReplicaSeen(
                rid, seen.incarnation, seen.node_id, "ready", f"http://h/{rid}"
            )

    def observed(self, complete: bool = True) -> ClusterObserved:
        """The agent's report."""
        nodes = []
        for instance in self.instances.values():
            node_id = instance.node_id or ""
            gpus = instance.offering.gpu_count if instance.offering else 0
            shown = 0 if node_id in self.gpuless else gpus
            held = self.held.get(node_id, ())
            seen = NodeSeen(
                node_id,
                node_id in self.joined,
                shown,
                held=held,
                notices=self.notices.get(node_id, ()),
                notices_complete=node_id in self.notices,
            )
            nodes.append(seen)
        return ClusterObserved(tuple(nodes), tuple(self.replicas.values()), complete)

    def demand(
        self, queued: int = 0, in_flight: int = 0, name: str = "m", peak: int = 0
    ) -> DemandSampled:
        """The gateway's report."""
        return DemandSampled(name, queued, in_flight, max(peak, queued + in_flight), 0)

    def idle_loads(self) -> LoadSampled:
        """The gateway runs nothing on any replica."""
        return LoadSampled(tuple(ReplicaLoad(r, 0) for r in sorted(self.replicas)))

    def kill_node(self, node_id: str) -> None:
        """The machine is gone, with everything on it."""
        self.joined.discard(node_id)
        self.instances = {k: v for k, v in self.instances.items() if v.node_id != node_id}
        self.kill_replicas(node_id)

    def kill_replicas(self, node_id: str) -> None:
        """What ran on the node is gone."""
        self.replicas = {k: v for k, v in self.replicas.items() if v.node_id != node_id}

    def settle(self, *more: Event, seconds: float = 1.0, rounds: int = 1) -> None:
        """Rounds in which everything goes well: orders done, machines boot, engines load."""
        for _ in range(rounds):
            self.now += seconds
            todo, self.pending = self.pending, []
            answers = [a for a in map(self.carry_out, todo) if a is not None]
            self.boot_all()
            self.load_all()
            loads = self.idle_loads()
            self.step(*answers, *self.listings(), self.observed(), loads, *more)

    def flow(self, *more: Event, seconds: float = 1.0, boot: bool = True) -> Plan:
        """One round in which orders are carried out and seen; nothing loads by itself."""
        self.now += seconds
        todo, self.pending = self.pending, []
        answers = [a for a in map(self.carry_out, todo) if a is not None]
        if boot:
            self.boot_all()
        return self.step(*answers, *self.listings(), self.observed(), *more)

    def open_endpoints(self, name: str = "m") -> list[str]:
        """Replicas that take new requests."""
        route: ModelRoute
        for route in self.table.models:
            if route.model == name:
                return [e.replica_id for e in route.endpoints if e.tier.value == "open"]
        return []

    def actions(self, kind: type[Action]) -> list[Action]:
        """All actions of one kind so far."""
        return [a for plan in self.log for a in plan.actions if isinstance(a, kind)]

    def phases(self) -> dict[str, str]:
        """Phase by id of every node that is not gone."""
        nodes = self.core.status(self.now)["nodes"]
        return {n["id"]: n["phase"] for n in nodes if n["phase"] != "gone"}
