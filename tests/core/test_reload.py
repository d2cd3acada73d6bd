"""What a reload may change, and how: nothing that serves goes before its successor does."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.actions import LaunchNode
from elasticd.core.events import (
    Configured,
    DrainRequested,
    HoldReleased,
    NoticeArrived,
    ReplicaSeen,
    ScaleHeld,
    UndrainRequested,
)
from elasticd.core.specs import FleetSpec
from tests.core.world import World, model, offering, pool


def serving(**changes: Any) -> World:
    """A world with everything up."""
    world = World([model(**changes)], [pool(max_nodes=8)])
    world.start()
    world.settle(rounds=10)
    return world


def reload(world: World, **changes: Any) -> None:
    world.spec = FleetSpec("c", (model(**changes),), world.spec.pools)
    world.step(Configured(world.spec))


def hashes(world: World) -> list[str]:
    fleet = world.core._state.fleet
    found = (fleet.replica(r) for r in world.open_endpoints())
    return sorted(r.spec_hash for r in found if r is not None)


@pytest.mark.parametrize("count", [1, 3])
def test_a_changed_model_is_rolled_out_one_surge_one_drain_at_a_time(count: int) -> None:
    world = serving(min_replicas=count, max_replicas=count)
    reload(world, min_replicas=count, max_replicas=count, spec_hash="new")
    seen_mixed = False
    for _ in range(60):
        world.settle()
        serving_now = hashes(world)
        assert len(serving_now) >= count, "never fewer than wanted"
        assert len(world.replicas) <= count + 2, "one more, and one that is being drained"
        seen_mixed = seen_mixed or len(set(serving_now)) == 2
    assert hashes(world) == ["new"] * count
    assert seen_mixed == (count > 1)


def test_what_a_roll_out_makes_room_for_is_made_in_the_same_step() -> None:
    world = serving(min_replicas=2, max_replicas=2)
    reload(world, min_replicas=2, max_replicas=2, spec_hash="new")
    for _ in range(30):
        world.settle()
        again = world.core.step(world.now, ())
        assert (again.actions, again.reasons) == ((), ())


def test_the_table_tells_which_spec_is_started_now() -> None:
    """Whoever waits for another one learns that none will come."""
    world = serving()
    (route,) = world.table.models
    assert {e.spec_hash for e in route.endpoints} == {route.spec_hash} == {"hash-m"}
    reload(world, spec_hash="new")
    assert world.table.models[0].spec_hash == "new"


def test_a_new_spec_that_does_not_start_leaves_the_old_one_serving() -> None:
    world = serving(min_replicas=2, max_replicas=2)
    reload(world, min_replicas=2, max_replicas=2, spec_hash="broken", start_attempts=2)
    for _ in range(200):
        world.now += 2.0
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        for rid, seen in world.replicas.items():
            if seen.phase == "starting":
                world.replicas[rid] = ReplicaSeen(
                    rid, 1, seen.node_id, "stopped", error="no such file"
                )
        world.step(*answers, *world.listings(), world.observed(), world.idle_loads())
        assert hashes(world) == ["hash-m"] * 2
    assert world.core.status(world.now)["models"][0]["failed"]
    assert world.core.status(world.now)["models"][0]["outdated"] == 2


def test_without_room_for_one_more_an_old_replica_makes_room() -> None:
    world = World([model(min_replicas=2, max_replicas=2)], [pool(max_nodes=2)])
    world.start()
    world.settle(rounds=10)
    reload(world, min_replicas=2, max_replicas=2, spec_hash="new")
    for _ in range(80):
        world.settle()
        assert len(hashes(world)) >= 1
    assert hashes(world) == ["new", "new"]


def test_scale_bounds_hold_at_once() -> None:
    world = serving()
    reload(world, min_replicas=3, max_replicas=3)
    world.settle(rounds=10)
    assert len(world.open_endpoints()) == 3


def test_min_zero_while_requests_come_takes_nothing_away_and_idleness_counts_from_the_last() -> (
    None
):
    world = serving(downscale_delay=30.0)
    for _ in range(40):
        world.settle(world.demand(in_flight=2))
    changes = {"downscale_delay": 30.0, "min_replicas": 0, "scale_to_zero_after": 100.0}
    reload(world, **changes)
    for _ in range(200):
        world.settle(world.demand(in_flight=2))
        assert len(world.open_endpoints()) == 1
    last = world.now
    while world.open_endpoints():
        world.settle(world.demand())
    assert 100.0 <= world.now - last <= 103.0
    world.settle(rounds=150)
    world.step(world.demand(queued=1))
    assert world.core.status(world.now)["models"][0]["wanted"] == 1, "no delay from zero"


def test_a_pool_of_no_machines_drains_those_it_has() -> None:
    world = World(
        [model(pools=("spot", "other"))],
        [pool(), pool("other")],
        [offering(), offering("other", price=2.0)],
    )
    world.start()
    world.settle(rounds=6)
    world.spec = FleetSpec("c", world.spec.models, (pool(max_nodes=0), pool("other")))
    world.step(Configured(world.spec))
    for _ in range(30):
        world.settle()
    (left,) = world.instances.values()
    assert left.offering is not None
    assert left.offering.pool == "other"
    assert len(world.open_endpoints()) == 1


def test_a_pool_that_may_have_machines_again_keeps_those_that_still_drain() -> None:
    world = serving()
    closed = FleetSpec("c", world.spec.models, (pool(max_nodes=0),))
    world.step(Configured(closed))
    assert list(world.phases().values()) == ["draining"]
    world.step(Configured(world.spec))
    assert list(world.phases().values()) == ["ready"]
    world.settle(rounds=200)
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1


def test_a_reload_in_the_middle_of_a_drain_changes_nothing_of_it() -> None:
    world = serving()
    (node_id,) = world.phases()
    world.step(DrainRequested(node_id, 120.0, "ann"))
    before = world.core.status(world.now)["nodes"][0]["seconds_left"]
    reload(world, max_replicas=2)
    told = world.core.status(world.now)["nodes"][0]
    assert (told["phase"], told["seconds_left"]) == ("draining", before)


def test_an_operator_drains_a_node_as_a_notice_would_and_its_replacement_comes_first() -> None:
    world = serving()
    (node_id,) = world.phases()
    world.step(DrainRequested(node_id, 120.0, "ann"))
    assert world.phases()[node_id] == "draining"
    assert len(world.actions(LaunchNode)) == 2
    assert "drained by ann" in world.core.status(world.now)["nodes"][0]["reason"]
    world.settle(rounds=8)
    assert node_id not in world.phases()
    assert len(world.open_endpoints()) == 1


def test_undrain_puts_the_node_and_its_replicas_back() -> None:
    world = serving()
    (node_id,) = world.phases()
    endpoints = world.open_endpoints()
    world.step(DrainRequested(node_id, 20.0, "ann"))
    assert world.open_endpoints() == []
    world.step(UndrainRequested(node_id, "bob"))
    assert world.phases()[node_id] == "ready"
    assert world.open_endpoints() == endpoints


def test_undrain_does_not_take_back_what_the_provider_announced() -> None:
    world = serving()
    (node_id,) = world.phases()
    (instance_id,) = world.instances
    world.step(DrainRequested(node_id, 120.0, "ann"))
    world.step(NoticeArrived("x", "spot", instance_id, "interruption", 60.0))
    world.step(UndrainRequested(node_id, "bob"))
    assert world.phases()[node_id] == "draining"


def test_of_two_drains_the_earlier_end_wins() -> None:
    world = serving()
    (node_id,) = world.phases()
    world.step(DrainRequested(node_id, 120.0, "ann"))
    world.step(DrainRequested(node_id, 30.0, "bob"))
    world.step(DrainRequested(node_id, 300.0, "eve"))
    assert world.core.status(world.now)["nodes"][0]["seconds_left"] == 30.0


def test_a_held_model_stays_there_whatever_the_demand_and_is_given_back_in_time() -> None:
    world = serving(max_replicas=4, downscale_delay=10.0, target_ongoing_requests=1.0)
    world.step(ScaleHeld("m", 3, 600.0, "ann"))
    world.settle(world.demand(), rounds=300)
    assert len(world.open_endpoints()) == 3
    told = world.core.status(world.now)["models"][0]
    assert told["hold"]["replicas"] == 3
    assert told["hold"]["seconds_left"] == pytest.approx(300.0)
    world.restart()
    assert world.core.status(world.now)["models"][0]["hold"]["by"] == "ann"
    world.settle(world.demand(), rounds=400)
    assert world.core.status(world.now)["models"][0]["hold"] is None
    assert len(world.open_endpoints()) == 1


def test_a_hold_without_an_end_ends_when_it_is_released() -> None:
    world = serving(max_replicas=4, downscale_delay=10.0)
    world.step(ScaleHeld("m", 2, None, "ann"))
    world.settle(world.demand(), rounds=1000)
    assert len(world.open_endpoints()) == 2
    world.step(HoldReleased("m", "bob"))
    world.settle(world.demand(), rounds=60)
    assert len(world.open_endpoints()) == 1


def test_a_hold_never_passes_max_replicas() -> None:
    world = serving(max_replicas=2)
    world.step(ScaleHeld("m", 9, None, "ann"))
    world.settle(rounds=10)
    assert len(world.open_endpoints()) == 2


def test_a_spec_that_fits_nowhere_takes_nothing_away() -> None:
    world = World([model()], [pool(max_nodes=1)])
    world.start()
    world.settle(rounds=10)
    reload(world, spec_hash="new", gpus_per_replica=2)
    for _ in range(120):
        world.settle()
        assert hashes(world) == ["hash-m"]
    assert "needs 2 GPUs" in world.core.status(world.now)["models"][0]["blocked"]


def test_a_roll_out_goes_on_while_load_wants_more_than_there_is_room_for() -> None:
    busy = {"max_replicas": 4, "target_ongoing_requests": 1.0, "upscale_delay": 2.0}
    world = World([model(**busy)], [pool(max_nodes=2)])
    world.start()
    world.settle(world.demand(queued=9, in_flight=2), rounds=12)
    assert len(world.open_endpoints()) == 2
    reload(world, spec_hash="new", **busy)
    for _ in range(120):
        world.settle(world.demand(queued=9, in_flight=2))
        assert len(hashes(world)) >= 1
    assert hashes(world) == ["new", "new"]


def test_the_last_replica_of_a_drained_node_stays_until_its_successor_serves() -> None:
    world = serving()
    (node_id,) = world.phases()
    (rid,) = world.replicas
    world.step(DrainRequested(node_id, 300.0, "ann"))
    for _ in range(60):  # the new machine boots and loads slowly; nothing is asked of the old one
        world.now += 2.0
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        world.step(*answers, *world.listings(), world.observed(), world.idle_loads())
        endpoints = world.table.models[0].endpoints
        assert [e.tier.value for e in endpoints if e.replica_id == rid] == ["open"]
    world.settle(rounds=6)
    assert rid not in world.replicas
    assert node_id not in world.phases()
    assert len(world.open_endpoints()) == 1
