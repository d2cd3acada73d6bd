"""What the proof's machine stands on: the world, the core's twin, and the invariants.

`USED` counts how often each rule did something and each fault happened, so that a long run can
show that it has tried everything.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from elasticd.core.actions import (
    Action,
    LaunchNode,
    StartReplica,
    TerminateNode,
)
from elasticd.core.budget import committed
from elasticd.core.codec import from_json, to_json
from elasticd.core.decide import Core
from elasticd.core.drain import LAST_WORDS
from elasticd.core.events import (
    Configured,
    DownRequested,
    Event,
    HoldReleased,
    ServeRequested,
)
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import COUNTED, NODE_PAID, ReplicaPhase
from elasticd.core.specs import FleetSpec, ModelSpec, NodePool
from elasticd.provider import InstanceState
from tests.core.world import LEDGER, World, model, offering, pool

MAX_NODES = 3
FOREIGN = "a-foreign-ledger"


START_ATTEMPTS = 3
MAX_LOADS = 1

USED: Counter[str] = Counter()
"""How often each rule has done something, over all examples of this process."""


def models(
    spec_hash: str = "one", max_replicas: int = 4, min_zero: bool = False
) -> tuple[ModelSpec, ...]:
    """One model that is always served, and one that may sleep."""
    return (
        model(
            "m",
            spec_hash=f"m-{spec_hash}",
            min_replicas=0 if min_zero else 1,
            max_replicas=max_replicas,
            target_ongoing_requests=2.0,
            upscale_delay=2.0,
            downscale_delay=20.0,
            start_timeout=60.0,
            start_attempts=START_ATTEMPTS,
            weights="hf:a/b@c",
            fetch_timeout=200.0,
        ),
        model(
            "z",
            min_replicas=0,
            max_replicas=2,
            gpus_per_replica=2,
            downscale_delay=5.0,
            scale_to_zero_after=30.0,
            start_attempts=START_ATTEMPTS,
        ),
    )


def spot(max_nodes: int = MAX_NODES) -> NodePool:
    """The one pool."""
    return pool(
        max_nodes=max_nodes,
        boot_timeout=120.0,
        idle_timeout=30.0,
        gpu_timeout=60.0,
        max_loads=MAX_LOADS,
    )


def fresh_world() -> World:
    return World(
        models(),
        [spot()],
        [offering(gpus=1), offering(gpus=2, price=0.9), offering(zone="b", gpus=2, price=1.2)],
    )


class Watched(RuleBasedStateMachine):
    """A core with its world and its twin, and what must hold after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = fresh_world()
        self.twin = Core(LEDGER, 1)
        self.answers: list[Event] = []
        self.launches: dict[str, LaunchNode] = {}
        self.adopted = False
        self.asked_before: set[str] = set()

    def step(self, *events: Event) -> None:
        events = tuple(self._through_json(e) for e in events)
        plan = self.world.step(*events)
        assert self.twin.step(self.world.now, events) == plan, "same events, same plans"
        again = self.world.core.step(self.world.now, ())
        self.twin.step(self.world.now, ())
        assert (again.actions, again.reasons) == ((), ()), f"the same moment again, after {plan}"
        self.asked_before = set(self.launches)
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
                if action.node_id not in self.launches:
                    known = self.world.core._state.models.values()
                    assert not all(m.failed for m in known), "nothing is bought for what failed"
                assert self.launches.setdefault(action.node_id, action) == action
            case StartReplica():
                replica = self.world.core._state.fleet.replica(action.replica_id)
                assert replica is not None
                assert replica.node_id == action.node_id
            case TerminateNode():
                instance = self.world.instances.get(action.instance_id)
                ours = {LEDGER, FOREIGN} if self.adopted else {LEDGER}
                assert instance is None or instance.ledger_id in ours
            case _:
                pass

    def go_well(self, rounds: int, seconds: float = 1.0) -> None:
        """So that faults meet a fleet that is there, and not only an empty one."""
        for _ in range(rounds):
            self.world.now += seconds
            todo, self.world.pending = self.world.pending, []
            answers = [a for a in map(self.world.carry_out, todo) if a is not None]
            self.world.boot_all()
            self.world.load_all()
            seen = (self.world.observed(), self.world.idle_loads())
            self.step(*answers, *self.world.listings(), *seen)

    @invariant()
    def never_more_nodes_than_allowed(self) -> None:
        paid = self.world.core._state.fleet.nodes(NODE_PAID)
        bought = [n for n in paid if n.id != "n-foreign"]  # adopted: people wanted it so
        assert len(bought) <= MAX_NODES

    @invariant()
    def nothing_is_bought_above_the_cap(self) -> None:
        state = self.world.core._state
        rent, cap = committed(state), state.budget.max_per_hour
        if cap is None or rent is None or rent <= cap:
            return
        # Only a cap that was lowered, or a machine nobody asked for, can lead here: not a purchase.
        bought = self.world.log[-1].actions
        asked = {a.node_id for a in bought if isinstance(a, LaunchNode)} - self.asked_before
        assert not asked, f"bought at {rent} above {cap}"

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
    def never_more_engines_load_at_once_than_allowed(self) -> None:
        starting = self.world.core._state.fleet.replicas({ReplicaPhase.STARTING})
        loads = Counter((r.node_id, r.model) for r in starting)
        assert max(loads.values(), default=0) <= MAX_LOADS

    @invariant()
    def bounds_of_the_models_hold(self) -> None:
        for found in self.world.core._state.models.values():
            if found.target is not None:
                assert found.target.replicas <= found.spec.scaling.max_replicas

    @invariant()
    def a_roll_out_surges_by_one(self) -> None:
        state = self.world.core._state
        found = state.models.get("m")
        if found is None or found.target is None or state.down:
            return
        counted = state.fleet.replicas(COUNTED, model="m")
        if any(r.spec_hash != found.spec.spec_hash for r in counted):
            assert len(counted) <= found.target.replicas + 1

    @invariant()
    def only_ready_replicas_are_open(self) -> None:
        fleet = self.world.core._state.fleet
        for name in ("m", "z"):
            for rid in self.world.open_endpoints(name):
                replica = fleet.replica(rid)
                assert replica is not None
                if replica.phase.value == "draining":  # with time until it is replaced
                    node = fleet.node(replica.node_id)
                    assert node is not None
                    assert node.phase.value == "draining"
                    assert replica.stop_at is not None
                    assert self.world.now < replica.stop_at - LAST_WORDS
                else:
                    assert replica.phase.value == "ready"

    @invariant()
    def rows_are_the_whole_truth(self) -> None:
        fleet = self.world.core._state.fleet
        copy = Core(LEDGER, 99, list(self.world.rows.values()))._state.fleet
        assert _differences(copy.nodes(), fleet.nodes()) == []
        assert _differences(copy.replicas(), fleet.replicas()) == []

    def _story(self) -> str:
        return _story_of(self.world.core.status(self.world.now))

    def teardown(self) -> None:
        """Once faults stop, the wanted state comes by itself; then everything can be given back."""
        world = self.world
        for key, instance in list(world.instances.items()):
            if instance.state is InstanceState.STOPPING:
                world.instances.pop(key, None)
                world.kill_node(instance.node_id or "")
        world.pending.clear()
        if not self.adopted:
            ours = {k: i for k, i in world.instances.items() if i.ledger_id != FOREIGN}
            world.instances = ours
        world.gpuless.clear()
        world.held.clear()
        for rid, seen in list(world.replicas.items()):
            world.replicas[rid] = replace(seen, stalled_for=None, unordered=False)
        world.spec = FleetSpec("c", models("last"), (spot(),))
        world.step(
            ServeRequested("test"),
            Configured(world.spec, retry_failed=True),
            HoldReleased("m", "test"),
        )
        quiet = (world.demand(), world.demand(name="z"))
        for _ in range(60):
            world.settle(*quiet, seconds=9.0)
        for _ in range(60):
            world.settle(*quiet, seconds=2.0)
        assert len(world.open_endpoints()) == 1, self._story()
        assert world.open_endpoints("z") == []
        assert len(world.instances) == 1
        world.step(DownRequested("test"))
        for _ in range(60):
            world.settle(*quiet, seconds=2.0)
        assert world.instances == {}


def _story_of(told: dict[str, Any]) -> str:
    """What a person would look at first."""
    return json.dumps(
        {key: told[key] for key in ("models", "pools", "nodes", "replicas")}, indent=1
    )


def _differences(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    known = {thing.id: thing for thing in ours}
    theirs = [_restarted(thing) for thing in theirs]
    missing = set(known) - {thing.id for thing in theirs}
    return [(known.get(t.id), t) for t in theirs if known.get(t.id) != t] + sorted(missing)


def _restarted(thing: Any) -> Any:
    """A restart asks again, and what was under way had no answer."""
    if isinstance(thing, Node):
        attempts = thing.attempts + thing.launching
        return replace(thing, asked_at=None, launching=False, attempts=attempts)
    return replace(thing, asked_at=None)
