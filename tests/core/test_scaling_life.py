"""Scaling as people meet it: over minutes, with machines that are slow and data that is missing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from elasticd.core.actions import LaunchNode
from elasticd.core.events import (
    ClusterObserved,
    Configured,
    LaunchFailed,
    NodeSeen,
    ReplicaSeen,
    ScaleHeld,
    TerminateAnswered,
)
from elasticd.core.fit import read_shape
from elasticd.core.lifecycle import NODE_PAID
from elasticd.core.memory_settings import MemorySettings
from tests.core.world import World, model, offering, pool

QWEN_14B = {
    "model_type": "qwen2",
    "num_hidden_layers": 48,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 13824,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}


def target(world: World) -> int:
    found: int = world.core.status(world.now)["models"][0]["wanted"]
    return found


def launches(world: World) -> int:
    return len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)})


def test_a_backlog_that_is_worked_off_makes_no_oscillation() -> None:
    world = World(
        [
            model(
                max_replicas=8,
                target_ongoing_requests=4.0,
                max_ongoing_requests=8,
                upscale_delay=10.0,
                downscale_delay=120.0,
            )
        ],
        [pool(max_nodes=8)],
    )
    world.start()
    world.settle(rounds=6)
    queue, targets, lowered_at = 40.0, [target(world)], []
    busy_until = world.now
    for _ in range(1800):
        slots = 8 * len(world.open_endpoints())
        running = min(queue, slots)
        if queue > 8:
            busy_until = world.now
        demand = world.demand(queued=round(queue - running), in_flight=round(running))
        world.settle(demand)
        queue = queue - running + 5.0  # each request takes one second, five come a second
        if target(world) != targets[-1]:
            if target(world) < targets[-1]:
                lowered_at.append(world.now)
            targets.append(target(world))
    directions = [b > a for a, b in pairwise(targets)]
    changes = sum(a != b for a, b in pairwise(directions))
    assert changes <= 2, targets
    assert targets[-1] == 2, "five requests at once, four wanted per replica"
    assert all(at >= busy_until + 120.0 for at in lowered_at), "never before the window is over"


def test_four_nodes_that_boot_for_minutes_are_bought_once() -> None:
    world = World([model(min_replicas=4, max_replicas=4)], [pool(max_nodes=20)])
    world.start()
    for _ in range(30):
        world.flow(world.demand(queued=60), seconds=10.0, boot=False)
    order = sorted(i.node_id or "" for i in world.instances.values())
    for node_id in order:  # they join one after the other
        world.joined.add(node_id)
        for _ in range(3):
            world.flow(world.demand(queued=60), seconds=10.0, boot=False)
    assert launches(world) == 4


def boots(world: World, gpus: int, boot: str = "") -> None:
    """One round in which the machine is in Ray with so many GPUs."""
    world.now += 10.0
    todo, world.pending = world.pending, []
    answers = [a for a in map(world.carry_out, todo) if a is not None]
    nodes = tuple(NodeSeen(i.node_id or "", not boot, gpus, boot) for i in world.instances.values())
    world.step(*answers, *world.listings(), ClusterObserved(nodes, (), True), world.demand(3))


def test_gpus_that_appear_after_minutes_are_waited_for() -> None:
    world = World([model()], [pool(gpu_timeout=300.0, boot_timeout=60.0)])
    world.start()
    for _ in range(18):
        boots(world, 0)
    assert launches(world) == 1
    boots(world, 1)
    assert list(world.phases().values()) == ["ready"]
    assert launches(world) == 1


def test_a_machine_that_waits_for_its_gpus_before_it_joins_has_the_same_time() -> None:
    world = World([model()], [pool(gpu_timeout=300.0, boot_timeout=60.0)])
    world.start()
    for _ in range(18):
        boots(world, 0, "waiting for GPUs: 0 of 1")
    assert launches(world) == 1
    boots(world, 1)
    assert launches(world) == 1


def test_gpus_that_never_appear_end_the_machine_with_that_reason_and_replace_it_once() -> None:
    world = World([model()], [pool(gpu_timeout=300.0, boot_timeout=60.0)])
    world.start()
    for _ in range(34):
        boots(world, 0)
    first = world.core.status(world.now)["nodes"][0]
    assert first["phase"] in ("terminating", "gone")
    assert "up, but shows 0 of 1 GPUs after 300 s" in first["reason"]
    assert launches(world) == 2


def test_unknown_replica_metrics_take_nothing_away_and_hinder_no_growth() -> None:
    world = World([model(min_replicas=2, max_replicas=4, downscale_delay=30.0)], [pool()])
    world.start()
    world.settle(rounds=8)
    for _ in range(600):
        world.now += 1.0
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        silent = tuple(
            ReplicaSeen(r.replica_id, 1, r.node_id, "unknown") for r in world.replicas.values()
        )
        seen = world.observed()
        world.step(
            *answers,
            *world.listings(),
            ClusterObserved(seen.nodes, silent, True),
            world.demand(in_flight=50),
        )
    replicas = world.core.status(world.now)["replicas"]
    assert [r["phase"] for r in replicas].count("ready") >= 2
    assert target(world) == 4, (
        "50 in flight, 16 wanted per replica: the gateway's counts are enough"
    )
    oldest = max(r["last_seen_age"] or 0.0 for r in replicas)
    assert oldest >= 590.0, "the status tells how old the metrics are"


def test_a_queue_counts_where_concurrency_cannot_exceed_the_target() -> None:
    world = World(
        [
            model(
                max_replicas=8,
                target_ongoing_requests=1.0,
                max_ongoing_requests=1,
                upscale_delay=5.0,
            )
        ],
        [pool(max_nodes=8)],
    )
    world.start()
    world.settle(rounds=6)
    for _ in range(60):
        ready = len(world.open_endpoints())
        world.settle(world.demand(queued=20 - ready, in_flight=ready))
    assert len(world.open_endpoints()) == 8


def test_the_idle_clock_of_a_node_does_not_run_while_its_engine_loads() -> None:
    world = World(
        [model(min_replicas=0, start_timeout=600.0, scale_to_zero_after=300.0)],
        [pool(idle_timeout=60.0)],
    )
    world.start()
    world.step(world.demand(queued=1))
    for _ in range(180):
        world.flow(world.demand(queued=1))
    assert list(world.phases().values()) == ["ready"]
    world.settle(world.demand(in_flight=1), rounds=3)
    assert len(world.open_endpoints()) == 1
    assert launches(world) == 1


def test_machines_that_do_not_end_count_against_the_limit_and_are_named() -> None:
    world = World(
        [model(min_replicas=4, max_replicas=4)],
        [pool(max_nodes=4, boot_timeout=120.0)],
    )
    world.start()
    paid = []
    for _ in range(240):
        world.now += 5.0
        todo, world.pending = world.pending, []
        answers = []
        for action in todo:
            if isinstance(action, LaunchNode):
                answers.append(world.carry_out(action))  # it will be pending for ever
            elif hasattr(action, "instance_id"):
                answers.append(TerminateAnswered(action.node_id, action.instance_id, False))
        world.step(*(a for a in answers if a is not None), *world.listings(), world.observed())
        paid.append(len(world.core._state.fleet.nodes(NODE_PAID)))
    assert max(paid) == 4
    told = world.core.status(world.now)
    assert len(told["pools"][0]["stuck"]) == 4
    assert "has been ending for" in told["pools"][0]["stuck"][0]
    assert "max_nodes 4 reached, 4 of them still ending" in told["models"][0]["blocked"]


def test_launches_that_keep_failing_come_ever_more_rarely() -> None:
    world = World([model()])
    world.start()
    tried = []
    for _ in range(3600):
        world.now += 1.0
        todo, world.pending = world.pending, []
        failed = [
            LaunchFailed(a.node_id, "NoCapacity", "none left", True)
            for a in todo
            if isinstance(a, LaunchNode)
        ]
        tried += [world.now] * len(failed)
        world.step(*failed, *world.listings(), world.observed())
    assert len(tried) <= 12
    gaps = [b - a for a, b in pairwise(tried)]
    assert gaps == sorted(gaps)


def test_four_gpus_on_one_machine_are_asked_for_when_two_and_two_are_free() -> None:
    world = World(
        [model("small", gpus_per_replica=2, min_replicas=2, max_replicas=2)],
        [pool(idle_timeout=9999.0)],
        [offering(gpus=1), offering(gpus=2, price=0.9), offering(gpus=4, price=9.0)],
    )
    world.start()
    world.settle(rounds=8)
    big = model("big", gpus_per_replica=4)
    world.spec = replace(world.spec, models=(*world.spec.models, big))
    world.step(Configured(world.spec), ScaleHeld("small", 0, None, "x"))
    world.settle(rounds=8)
    assert len(world.open_endpoints("big")) == 1
    bought = [
        a.offerings[0].gpu_count for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)
    ]
    assert bought == [2, 2, 4], "one machine of four, not four more GPUs in pieces"


def test_a_shape_that_nobody_offers_is_told_with_what_there_is() -> None:
    world = World(
        [model("small", gpus_per_replica=2, min_replicas=2, max_replicas=2)],
        [pool(idle_timeout=9999.0)],
        [offering(gpus=1), offering(gpus=2, price=0.9)],
    )
    world.start()
    world.settle(rounds=8)
    world.spec = replace(world.spec, models=(*world.spec.models, model("big", gpus_per_replica=4)))
    world.step(Configured(world.spec), ScaleHeld("small", 0, None, "x"))
    world.settle(rounds=8)
    told = world.core.status(world.now)["models"][1]["blocked"]
    assert told == (
        "spot: needs 4 GPUs on one machine; there is 1 × L4, 2 × L4; "
        "free are 2 + 2 GPUs, 4 are needed on one node"
    )
    assert launches(world) == 2


def test_lost_and_preempted_nodes_stay_listed_for_an_hour_with_reason_and_age() -> None:
    world = World([model(min_replicas=2, max_replicas=2)])
    world.start()
    world.settle(rounds=8)
    first = sorted(world.phases())[0]
    world.kill_node(first)
    world.settle(rounds=6)
    world.settle(seconds=60.0, rounds=10)
    told = {n["id"]: n for n in world.core.status(world.now)["nodes"]}
    assert told[first]["phase"] == "gone"
    assert told[first]["reason"]
    assert told[first]["ended_age"] >= 600.0
    alive = [n for n in told.values() if n["phase"] == "ready"]
    assert all(n["ended_age"] is None and n["last_seen_age"] is not None for n in alive)
    world.settle(seconds=60.0, rounds=60)
    assert first not in {n["id"] for n in world.core.status(world.now)["nodes"]}


def test_how_long_things_usually_take_is_measured_and_outlives_a_restart() -> None:
    world = World([model()])
    world.start()
    world.settle(rounds=8)
    world.restart()
    (instance,) = world.instances.values()
    world.kill_node(instance.node_id or "")
    told: list[dict[str, object]] = []
    while not told:
        world.flow(boot=False)
        told = [n for n in world.core.status(world.now)["nodes"] if n["phase"] == "booting"]
    assert told[0]["usual"] is not None
    world.boot_all()
    world.step(world.observed())
    (replica,) = [r for r in world.core.status(world.now)["replicas"] if r["phase"] == "starting"]
    assert replica["usual"] is not None


def test_a_gpu_that_something_still_holds_is_not_counted_as_free() -> None:
    world = World([model(min_replicas=2, max_replicas=2)], [pool()], [offering(gpus=2)])
    world.start()
    held = ("GPU 1 is held by pid 4242 (python)",)
    for _ in range(12):
        world.now += 1.0
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        world.load_all()
        seen = world.observed()
        nodes = tuple(
            NodeSeen(n.node_id, n.alive, n.gpus, held=held if n is seen.nodes[0] else ())
            for n in seen.nodes
        )
        world.step(*answers, *world.listings(), ClusterObserved(nodes, seen.replicas, True))
    assert len(world.open_endpoints()) == 2
    assert len({r.node_id for r in world.replicas.values()}) == 2
    assert world.core.status(world.now)["nodes"][0]["held"] == list(held)


def test_the_number_of_gpus_follows_the_machine_where_it_is_left_to_us() -> None:
    shape = read_shape(QWEN_14B)
    world = World(
        [model(gpus_per_replica=0, shape=shape, memory=MemorySettings(max_model_len=32768))],
        [pool(max_nodes=1)],
        [offering(gpus=1, kind="L4"), offering(gpus=4, kind="L4", price=2.0)],
    )
    world.start()
    world.settle(rounds=6)
    (replica,) = world.core.status(world.now)["replicas"]
    assert replica["gpus"] == 2, "one of 24 GB does not hold 14 billion parameters, two do"
    (bought,) = world.actions(LaunchNode)
    assert isinstance(bought, LaunchNode)
    assert [o.gpu_count for o in bought.offerings] == [4]
    big = World(
        [model(gpus_per_replica=0, shape=shape, memory=MemorySettings(max_model_len=32768))],
        [pool(max_nodes=1)],
        [offering(gpus=4, kind="H100")],
    )
    big.start()
    big.settle(rounds=6)
    assert big.core.status(big.now)["replicas"][0]["gpus"] == 1


def test_a_machine_that_cannot_even_hold_the_weights_is_never_bought() -> None:
    world = World([model(shape=read_shape(QWEN_14B))], [pool()], [offering(gpus=1, kind="L4")])
    world.start()
    world.settle(rounds=6)
    assert launches(world) == 0
    told = world.core.status(world.now)["models"][0]["blocked"]
    assert "1 × L4 do not hold the weights: 27.5 GiB on each of 22.0 GiB" in told


def test_a_slow_first_start_outlives_impatient_clients() -> None:
    world = World([model(min_replicas=0, scale_to_zero_after=8.0, downscale_delay=2.0)])
    world.start()
    world.step(world.demand(queued=1))
    for second in range(60):  # the client has long given up
        world.flow(world.demand(queued=1 if second % 18 < 4 else 0))
    assert len(world.replicas) == 1
    world.load_all()
    world.flow(world.demand())
    ready_at = world.now
    assert len(world.open_endpoints()) == 1
    while world.open_endpoints():
        world.flow(world.demand(), world.idle_loads())
    assert 8.0 <= world.now - ready_at <= 11.0, "the idle clock began when it was ready"
