"""Whatever happens in whatever order, the core keeps its invariants and says the same twice."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elasticd.core.actions import Action, LaunchNode, PublishTable, StartReplica, TerminateNode
from elasticd.core.codec import from_json, to_json
from elasticd.core.decide import Core
from elasticd.core.events import (
    ClusterUnreachable,
    Configured,
    DownRequested,
    EndpointBroken,
    Event,
    LaunchFailed,
    ListFailed,
    NoticeArrived,
    NoticeTakenBack,
    ReplicaOrderFailed,
    ReplicaSeen,
    ServeRequested,
    TerminateFailed,
)
from elasticd.core.lifecycle import NODE_PAID
from elasticd.provider import InstanceState
from tests.core.world import LEDGER, World, model, offering, pool

MAX_NODES = 3
PICK = st.integers(min_value=0, max_value=9)


def fresh_world() -> World:
    return World(
        [
            model(
                "m",
                max_replicas=4,
                target_ongoing_requests=2.0,
                upscale_delay=2.0,
                downscale_delay=20.0,
                start_timeout=60.0,
            ),
            model(
                "z",
                min_replicas=0,
                max_replicas=2,
                gpus_per_replica=2,
                downscale_delay=5.0,
                scale_to_zero_after=30.0,
            ),
        ],
        [pool(max_nodes=MAX_NODES, boot_timeout=120.0, idle_timeout=30.0)],
        [offering(gpus=1), offering(gpus=2, price=0.9), offering(zone="b", gpus=2, price=1.2)],
    )


class AnyOrder(RuleBasedStateMachine):
    """A controller in a world of late, lost, repeated and false answers, deaths and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.world = fresh_world()
        self.twin = Core(LEDGER, 1)
        self.answers: list[Event] = []
        self.launches: dict[str, LaunchNode] = {}
        self.foreign = False

    def step(self, *events: Event) -> None:
        events = tuple(self._through_json(e) for e in events)
        plan = self.world.step(*events)
        assert self.twin.step(self.world.now, events) == plan, "same events, same plans"
        again = self.world.core.step(self.world.now, ())
        self.twin.step(self.world.now, ())
        assert again.actions == (), "the same moment again yields nothing new"
        assert again.reasons == ()
        for action in plan.actions:
            self._through_json(action)
            self._check_action(action)
        if plan.wake_at is not None:
            assert plan.wake_at > self.world.now

    @staticmethod
    def _through_json(value: Any) -> Any:
        back = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
        assert back == value
        return back

    def _check_action(self, action: Action) -> None:
        match action:
            case LaunchNode():
                assert self.launches.setdefault(action.node_id, action) == action
            case StartReplica():
                replica = self.world.core._state.fleet.replica(action.replica_id)
                assert replica is not None
                assert replica.node_id == action.node_id
            case TerminateNode():
                instance = self.world.instances.get(action.instance_id)
                assert instance is None or instance.ledger_id == LEDGER
            case _:
                pass

    @initialize()
    def begin(self) -> None:
        self.step(Configured(self.world.spec))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.step()

    @rule()
    def lists_arrive(self) -> None:
        self.step(*self.world.listings())

    @rule(what=st.sampled_from(["instances", "offerings"]))
    def a_list_fails(self, what: str) -> None:
        self.step(ListFailed("spot", what, "Unavailable", "503"))

    @rule(which=PICK)
    def an_order_is_carried_out(self, which: int) -> None:
        if self.world.pending:
            action = self.world.pending.pop(which % len(self.world.pending))
            answer = self.world.carry_out(action)
            if answer is not None:
                self.answers.append(answer)

    @rule(which=PICK, definite=st.booleans())
    def an_order_fails(self, which: int, definite: bool) -> None:
        if not self.world.pending:
            return
        match self.world.pending.pop(which % len(self.world.pending)):
            case LaunchNode(node_id=node_id):
                if not (definite and self.world.launched.get(node_id)):
                    error = "NoCapacity" if definite else "Unavailable"
                    self.step(LaunchFailed(node_id, error, "no", definite))
            case TerminateNode(node_id=node_id, instance_id=instance_id):
                self.step(TerminateFailed(node_id, instance_id, "Unavailable", "no"))
            case StartReplica(replica_id=rid):
                self.step(ReplicaOrderFailed(rid, 1, "start", "no", definite))
            case _:
                pass

    @rule(which=PICK, keep=st.booleans())
    def an_answer_arrives(self, which: int, keep: bool) -> None:
        if self.answers:
            index = which % len(self.answers)
            answer = self.answers[index] if keep else self.answers.pop(index)
            self.step(answer)

    @rule(which=PICK)
    def an_answer_is_lost(self, which: int) -> None:
        if self.answers:
            self.answers.pop(which % len(self.answers))

    @rule()
    def machines_boot(self) -> None:
        self.world.boot_all()

    @rule()
    def engines_load(self) -> None:
        self.world.load_all()

    @rule(complete=st.booleans())
    def the_agent_reports(self, complete: bool) -> None:
        self.step(self.world.observed(complete))

    @rule()
    def the_agent_is_away(self) -> None:
        self.step(ClusterUnreachable("refused"))

    @rule(queued=st.integers(0, 9), in_flight=st.integers(0, 9), name=st.sampled_from(["m", "z"]))
    def demand_is_reported(self, queued: int, in_flight: int, name: str) -> None:
        self.step(self.world.demand(queued, in_flight, name), self.world.idle_loads())

    @rule(which=PICK)
    def a_node_dies(self, which: int) -> None:
        nodes = sorted(i.node_id or "" for i in self.world.instances.values())
        if nodes:
            self.world.kill_node(nodes[which % len(nodes)])

    @rule(which=PICK)
    def an_engine_dies(self, which: int) -> None:
        if self.world.replicas:
            rid = sorted(self.world.replicas)[which % len(self.world.replicas)]
            old = self.world.replicas.pop(rid)
            self.world.replicas[rid] = ReplicaSeen(rid, 1, old.node_id, "stopped", error="-9")

    @rule(which=PICK)
    def a_connection_breaks(self, which: int) -> None:
        endpoints = self.world.open_endpoints() or ["r-none"]
        self.step(EndpointBroken(endpoints[which % len(endpoints)], 1, "reset"))

    @rule(which=PICK, left=st.floats(0, 200), back=st.booleans())
    def a_notice_comes(self, which: int, left: float, back: bool) -> None:
        ids = sorted(self.world.instances) or ["i-none"]
        instance = ids[which % len(ids)]
        if back:
            self.step(NoticeTakenBack("n-" + instance, "spot", instance))
        else:
            self.step(NoticeArrived("n-" + instance, "spot", instance, "interruption", left))

    @rule(serve=st.booleans())
    def somebody_asks_for_down_or_to_serve(self, serve: bool) -> None:
        self.step(ServeRequested("test") if serve else DownRequested("test"))

    @rule()
    def the_controller_restarts(self) -> None:
        rows = list(self.world.rows.values())
        self.world.restart()
        self.twin = Core(LEDGER, self.world.epoch, rows)
        self.twin.step(self.world.now, (Configured(self.world.spec),))

    @rule()
    def lists_show_machines_that_are_ending(self) -> None:
        for key, instance in sorted(self.world.instances.items())[:1]:
            from dataclasses import replace

            self.world.instances[key] = replace(instance, state=InstanceState.STOPPING)

    @invariant()
    def never_more_nodes_than_allowed(self) -> None:
        assert len(self.world.core._state.fleet.nodes(NODE_PAID)) <= MAX_NODES

    @invariant()
    def never_two_machines_for_one_node(self) -> None:
        assert all(len(ids) <= 1 for ids in self.world.launched.values())

    @invariant()
    def never_more_gpus_used_than_there_are(self) -> None:
        fleet = self.world.core._state.fleet
        for node_id, used in fleet.occupied().items():
            node = fleet.node(node_id)
            assert node is not None
            assert used <= node.expected_gpus

    @invariant()
    def bounds_of_the_model_hold(self) -> None:
        state = self.world.core._state
        for name, limit in (("m", 4), ("z", 2)):
            found = state.models.get(name)
            if found is not None and found.target is not None:
                assert found.target.replicas <= limit

    @invariant()
    def only_ready_replicas_are_open(self) -> None:
        fleet = self.world.core._state.fleet
        for name in ("m", "z"):
            for rid in self.world.open_endpoints(name):
                replica = fleet.replica(rid)
                assert replica is not None
                assert replica.phase.value == "ready"

    @invariant()
    def rows_are_the_whole_truth(self) -> None:
        fleet = self.world.core._state.fleet
        copy = Core(LEDGER, 99, list(self.world.rows.values()))._state.fleet
        assert {n.id: n for n in copy.nodes()} == {n.id: n for n in fleet.nodes()}
        assert {r.id: r for r in copy.replicas()} == {r.id: r for r in fleet.replicas()}

    def teardown(self) -> None:
        """Once faults stop, the wanted state comes by itself; then everything can be given back."""
        world = self.world
        for key, instance in list(world.instances.items()):
            if instance.state is InstanceState.STOPPING:
                del world.instances[key]
                world.kill_node(instance.node_id or "")
        world.pending.clear()
        world.step(ServeRequested("test"))
        quiet = (world.demand(), world.demand(name="z"))
        for _ in range(60):
            world.settle(*quiet, seconds=9.0)
        for _ in range(60):
            world.settle(*quiet, seconds=2.0)
        assert len(world.open_endpoints()) == 1
        assert world.open_endpoints("z") == []
        assert len(world.instances) == 1
        world.step(DownRequested("test"))
        for _ in range(60):
            world.settle(*quiet, seconds=2.0)
        assert world.instances == {}


AnyOrder.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrder = AnyOrder.TestCase


def test_every_published_table_can_be_read_back() -> None:
    from elasticd.routing_table import table_from_json, table_to_json

    world = fresh_world()
    world.start()
    world.settle(rounds=5)
    tables = world.log and [
        a.table for plan in world.log for a in plan.actions if isinstance(a, PublishTable)
    ]
    assert len(tables) >= 2
    for table in tables:
        assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table
