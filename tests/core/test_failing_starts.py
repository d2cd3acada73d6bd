"""Engines that do not start: pauses, an end to trying, and no money for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from elasticd.core.actions import LaunchNode, StartReplica
from elasticd.core.events import Configured, ReplicaSeen, ScaleHeld
from elasticd.core.specs import FleetSpec
from tests.core.world import World, model, offering, pool

CAUSE = "engine ended: no such file: /m"


def fail_all(world: World) -> None:
    """Every engine that was started ends at once with the same message."""
    for rid, seen in world.replicas.items():
        world.replicas[rid] = ReplicaSeen(
            rid, 1, seen.node_id, "stopped", error=CAUSE, log_tail=("Traceback", "OSError: /m")
        )


def live_badly(world: World, seconds: float, step: float = 1.0) -> None:
    """Time in which machines boot and no engine ever starts."""
    end = world.now + seconds
    while world.now < end:
        world.now += step
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        fail_all(world)
        world.step(*answers, *world.listings(), world.observed(), world.demand(queued=3))


def starts(world: World) -> int:
    return len({a.replica_id for a in world.actions(StartReplica) if isinstance(a, StartReplica)})


def only_model(world: World) -> dict[str, object]:
    found: dict[str, object] = world.core.status(world.now)["models"][0]
    return found


def test_a_model_that_never_starts_counts_as_failed_and_buys_nothing_more() -> None:
    world = World([model(start_attempts=4)], [pool(idle_timeout=60.0)])
    world.start()
    live_badly(world, 300.0)
    assert starts(world) == 4
    bought = len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)})
    assert bought == 1
    live_badly(world, 3000.0, step=5.0)
    assert len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)}) == 1
    assert world.instances == {}, "the idle machine went back, and nobody pays"
    told = only_model(world)
    assert told["failed"]
    assert told["last_cause"] == CAUSE
    assert told["last_tail"] == ["Traceback", "OSError: /m"]


def test_the_gateway_is_told_at_once_that_a_model_has_failed() -> None:
    world = World([model(start_attempts=2)])
    world.start()
    live_badly(world, 30.0)
    route = world.table.models[0]
    assert route.max_wait == 0.0
    assert route.state.startswith("failed: 2 starts in a row did not work")
    assert CAUSE in route.state


def test_a_failed_model_with_min_zero_wakes_nothing() -> None:
    world = World([model(start_attempts=2, min_replicas=0, scale_to_zero_after=10.0)])
    world.start()
    world.step(world.demand(queued=1))
    live_badly(world, 2000.0, step=5.0)
    assert len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)}) == 1


def test_pauses_between_failing_starts_grow() -> None:
    world = World([model(start_attempts=6)], [pool(idle_timeout=3600.0)])
    world.start()
    live_badly(world, 200.0)
    times = sorted(r.created for r in world.core._state.fleet.replicas())
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps == sorted(gaps)
    assert starts(world) == 6


def test_after_a_failure_only_one_replica_tries_at_a_time() -> None:
    world = World(
        [model(min_replicas=4, max_replicas=4, start_attempts=9)],
        [pool(max_loads=8)],
        [offering(gpus=4)],
    )
    world.start()
    live_badly(world, 8.0)
    first = starts(world)
    assert first == 4, "they all began together, before anything was known"
    world.pending.clear()
    for _ in range(60):
        world.flow(boot=False)
    assert starts(world) == first + 1, "the fifth is starting, the others wait for it"


def test_a_start_that_works_lets_the_others_go_on() -> None:
    world = World([model(min_replicas=2, max_replicas=2)], [pool(max_loads=8)], [offering(gpus=2)])
    world.start()
    live_badly(world, 4.0)
    assert only_model(world)["failures"]
    world.settle(rounds=40)
    assert len(world.open_endpoints()) == 2
    world.settle(rounds=120)
    assert not only_model(world)["failures"], "what has served for a while did start"


def test_a_failed_model_is_probed_now_and_then_where_a_node_is_there_anyway() -> None:
    world = World([model(start_attempts=2)], [pool(idle_timeout=36000.0)])
    world.start()
    live_badly(world, 1000.0, step=5.0)
    assert 3 <= starts(world) <= 4
    world.settle(rounds=700)
    assert len(world.open_endpoints()) == 1


def test_a_changed_spec_or_an_operator_gives_a_failed_model_another_chance() -> None:
    for chance in (
        Configured(FleetSpec("c", (model(start_attempts=2, spec_hash="fixed"),), (pool(),))),
        Configured(FleetSpec("c", (model(start_attempts=2),), (pool(),)), retry_failed=True),
        ScaleHeld("m", 1, 60.0, "somebody"),
    ):
        world = World([model(start_attempts=2)])
        world.start()
        live_badly(world, 400.0)
        assert only_model(world)["failed"]
        if isinstance(chance, Configured):
            world.spec = chance.spec
        world.step(chance)
        world.settle(rounds=8)
        assert len(world.open_endpoints()) == 1, chance


def test_the_same_configuration_again_is_no_new_chance() -> None:
    world = World([model(start_attempts=2)])
    world.start()
    live_badly(world, 400.0)
    world.step(Configured(world.spec))
    assert only_model(world)["failed"]


def test_a_restart_of_the_controller_does_not_begin_to_buy_again() -> None:
    world = World([model(start_attempts=2)])
    world.start()
    live_badly(world, 400.0)
    bought = len(world.actions(LaunchNode))
    world.restart()
    live_badly(world, 400.0)
    assert only_model(world)["failed"]
    assert only_model(world)["last_cause"] == CAUSE
    assert len(world.actions(LaunchNode)) == bought


def test_a_lost_node_says_nothing_about_the_model() -> None:
    world = World([model(start_attempts=1)])
    world.start()
    for _ in range(4):
        world.settle()
        world.replicas = {
            r: ReplicaSeen(r, 1, s.node_id, "starting") for r, s in world.replicas.items()
        }
    for instance in list(world.instances.values()):
        world.kill_node(instance.node_id or "")
    for _ in range(3):
        world.now += 1.0
        world.step(*world.listings(), world.observed())
    assert not only_model(world)["failed"]
    world.settle(rounds=8)
    assert len(world.open_endpoints()) == 1


def test_engines_that_load_at_once_on_one_node_are_limited_and_none_is_bought_for() -> None:
    world = World([model(min_replicas=4, max_replicas=4)], [pool(max_loads=2)], [offering(gpus=4)])
    world.start()
    most = 0
    for _ in range(12):
        world.flow()
        loading = [r for r in world.core.status(world.now)["replicas"] if r["phase"] == "starting"]
        most = max(most, len(loading))
        waiting = [r for r in world.core.status(world.now)["replicas"] if r["phase"] == "pending"]
        if most == 2:
            assert all("2 engines load there" in r["load_phase"] for r in waiting)
    assert most == 2
    world.settle(rounds=6)
    assert len(world.open_endpoints()) == 4
    assert len(world.instances) == 1


def test_a_start_has_its_own_time_after_its_weights_have_come() -> None:
    world = World([model(start_timeout=100.0, fetch_timeout=1000.0, weights="hf:a/b@c")])
    world.start()
    for _ in range(3):
        world.flow()
    (rid,) = world.replicas
    node_id = world.replicas[rid].node_id

    def at(seconds: float, phase: str) -> str:
        world.now += seconds
        world.replicas[rid] = ReplicaSeen(rid, 1, node_id, phase, load_phase="34 %")
        world.step(*world.listings(), world.observed())
        return next(
            str(r["phase"]) for r in world.core.status(world.now)["replicas"] if r["id"] == rid
        )

    assert at(1.0, "fetching") == "starting"
    assert at(900.0, "fetching") == "starting"
    assert at(50.0, "starting") == "starting"
    assert world.core.status(world.now)["nodes"][0]["weights"] == ["hf:a/b@c"]
    assert at(99.0, "starting") == "starting"
    assert at(2.0, "starting") == "draining", "the engine had its 100 seconds"


def test_weights_that_do_not_come_in_time_end_the_start_and_say_how_far_they_were() -> None:
    world = World([model(fetch_timeout=300.0, weights="hf:a/b@c")])
    world.start()
    for _ in range(3):
        world.flow()
    (rid,) = world.replicas
    seen = world.replicas[rid]
    world.replicas[rid] = ReplicaSeen(rid, 1, seen.node_id, "fetching", load_phase="34 % of 28 GiB")
    world.step(world.observed())
    world.now += 301.0
    world.step(world.observed())
    assert only_model(world)["last_cause"] == "weights took longer than 300 s (34 % of 28 GiB)"


def test_an_order_lost_with_the_agent_is_given_again() -> None:
    world = World()
    world.start()
    for _ in range(3):
        world.flow()
    (rid,) = world.replicas
    node_id = world.replicas[rid].node_id
    orders = len(world.actions(StartReplica))
    world.replicas[rid] = ReplicaSeen(rid, 1, node_id, "starting", unordered=True)
    plan = world.step(world.observed())
    assert [a.replica_id for a in plan.actions if isinstance(a, StartReplica)] == [rid]
    assert world.step(world.observed()).actions == (), "once is enough while it is on its way"
    assert len(world.actions(StartReplica)) == orders + 1


def test_a_model_whose_source_is_not_resolved_waits_and_says_why() -> None:
    why = "hub.example does not answer; tried again in 30 s"
    world = World([model(unresolved=why)])
    world.start()
    world.settle(rounds=3)
    assert world.launched == {}
    assert only_model(world)["blocked"] == why
    assert world.table.models[0].state == why
    world.spec = FleetSpec("c", (model(),), world.spec.pools)
    world.step(Configured(world.spec))
    world.settle(rounds=6)
    assert len(world.open_endpoints()) == 1


def test_a_node_that_has_the_weights_is_preferred() -> None:
    world = World(
        [model("m", weights="hf:a/b@c"), model("z", min_replicas=2, max_replicas=2)],
        [pool(max_nodes=3, idle_timeout=9999.0)],
    )
    world.start()
    world.settle(rounds=8)
    (home,) = {s.node_id for r, s in world.replicas.items() if r in world.open_endpoints("m")}
    world.spec = FleetSpec(
        "c",
        (model("m", weights="hf:a/b@c", min_replicas=0), model("z", min_replicas=0)),
        world.spec.pools,
    )
    world.step(Configured(world.spec), ScaleHeld("m", 0, None, "x"), ScaleHeld("z", 0, None, "x"))
    world.settle(rounds=6)
    assert world.open_endpoints("m") == []
    world.step(ScaleHeld("m", 1, None, "x"))
    world.settle(rounds=3)
    assert {s.node_id for s in world.replicas.values()} == {home}


def test_an_engine_that_dies_soon_after_each_start_counts_as_failed() -> None:
    world = World([model(start_attempts=3)], [pool(idle_timeout=36000.0)])
    world.start()
    for _ in range(300):
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        world.load_all()
        world.now += 2.0
        world.step(*answers, *world.listings(), world.observed(), world.demand(queued=3))
        world.now += 4.0
        fail_all(world)
        world.step(world.observed(), world.demand(queued=3))
    assert only_model(world)["failed"]
    assert starts(world) <= 3 + 4, "three, and a probe every ten minutes"
    assert only_model(world)["last_tail"]


def test_deaths_of_one_replica_do_not_fail_a_model_that_another_serves_steadily() -> None:
    world = World([model(min_replicas=2, max_replicas=2, start_attempts=3)])
    world.start()
    world.settle(rounds=200)
    steady = min(world.replicas)
    for _ in range(8):
        world.replicas = {
            rid: seen if rid == steady else ReplicaSeen(rid, 1, seen.node_id, "stopped", error="x")
            for rid, seen in world.replicas.items()
        }
        world.step(world.observed())
        world.settle(seconds=10.0, rounds=40)
        assert not only_model(world)["failed"]
    assert len(world.open_endpoints()) == 2


def test_an_engine_that_dies_after_long_service_is_started_again_at_once() -> None:
    world = World([model(start_attempts=1)])
    world.start()
    world.settle(rounds=200)
    before = starts(world)
    fail_all(world)
    world.step(world.observed())
    assert starts(world) == before + 1
    assert not only_model(world)["failures"]


def test_weights_that_are_slow_to_come_keep_no_other_model_waiting() -> None:
    world = World(
        [
            model("m", min_replicas=4, max_replicas=4, weights="hf:a/b@c"),
            model("z", min_replicas=0, max_replicas=1),
        ],
        [pool(max_loads=2, max_nodes=1)],
        [offering(gpus=8)],
    )
    world.start()
    for _ in range(3):
        world.flow()
    world.replicas = {r: replace(s, phase="fetching") for r, s in world.replicas.items()}
    world.flow(ScaleHeld("z", 1, None, "x"))
    starting = [r for r in world.core.status(world.now)["replicas"] if r["phase"] == "starting"]
    assert [r["model"] for r in starting] == ["m", "m", "z"]
