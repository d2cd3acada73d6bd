"""No machine is paid for and forgotten, and none that is not ours is touched."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.actions import LaunchNode, TerminateNode
from elasticd.core.events import (
    AdoptRequested,
    Configured,
    DownRequested,
    InstancesListed,
    LaunchAnswered,
    LaunchFailed,
    TerminateAnswered,
)
from elasticd.core.specs import FleetSpec
from elasticd.provider import Instance, InstanceState
from tests.core.world import LEDGER, World, model, offering, pool

FOREIGN = "another-ledger-0000"


def machine(
    key: str, node_id: str | None, ledger: str | None = LEDGER, at: float | None = None
) -> Instance:
    return Instance(
        key, node_id, ledger, InstanceState.RUNNING, offering(), "10.0.0.9", launched_at=at
    )


def serving(**changes: object) -> World:
    world = World([model()], [pool(**changes)])  # type: ignore[arg-type]
    world.start()
    world.settle(rounds=4)
    assert len(world.open_endpoints()) == 1
    return world


def ended(world: World) -> list[str]:
    return [a.instance_id for a in world.actions(TerminateNode) if isinstance(a, TerminateNode)]


def test_a_machine_of_ours_that_no_node_stands_for_is_ended_after_the_guard_age() -> None:
    world = serving(guard_age=30.0)
    world.instances["i-lost"] = machine("i-lost", "n-of-an-earlier-life")
    for _ in range(29):
        world.settle()
    assert ended(world) == []
    [told] = world.core.status(world.now)["pools"][0]["orphans"]
    assert told["instance_id"] == "i-lost"
    assert told["seconds_left"] <= 2.0
    world.settle(rounds=4)
    assert "i-lost" in ended(world)
    assert "i-lost" not in world.instances
    assert world.core.status(world.now)["pools"][0]["orphans"] == []


def test_an_orphan_that_one_list_alone_shows_is_not_ended() -> None:
    world = serving(guard_age=5.0)
    world.instances["i-lost"] = machine("i-lost", "n-x")
    world.step(*world.listings())
    del world.instances["i-lost"]
    world.settle(rounds=20)
    assert ended(world) == []


def test_many_orphans_at_once_are_probably_our_error_and_wait_longer() -> None:
    world = serving(guard_age=5.0)
    for key in ("i-a", "i-b", "i-c"):
        world.instances[key] = machine(key, f"n-{key}")
    world.settle(rounds=50)
    assert ended(world) == []
    world.settle(rounds=20)
    assert {"i-a", "i-b", "i-c"} <= set(ended(world))
    assert len(world.instances) == 1


def test_of_two_machines_for_one_node_the_one_that_is_known_stays() -> None:
    world = serving(guard_age=5.0)
    [kept] = world.instances.values()
    world.instances["i-0-twin"] = replace(kept, instance_id="i-0-twin", launched_at=1.0)
    world.settle(rounds=12)
    assert ended(world)
    assert set(ended(world)) == {"i-0-twin"}
    assert list(world.instances) == [kept.instance_id]
    assert len(world.open_endpoints()) == 1


def test_of_two_machines_for_a_node_that_knows_none_the_oldest_stays() -> None:
    world = World([model()], [pool(guard_age=5.0)])
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    world.pending.clear()
    world.instances["i-1"] = machine("i-1", launch.node_id, at=50.0)
    world.instances["i-2"] = machine("i-2", launch.node_id, at=40.0)
    world.step(LaunchFailed(launch.node_id, "Unavailable", "lost", False), *world.listings())
    world.settle(rounds=12)
    assert set(ended(world)) == {"i-1"}
    assert len(world.open_endpoints()) == 1


def test_a_machine_whose_marks_do_not_show_yet_is_known_by_its_id() -> None:
    world = World([model()], [pool(visibility_grace=5.0)])
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    world.pending.clear()
    bare = machine("i-1", None, None)
    world.step(LaunchAnswered(launch.node_id, replace(bare, node_id=launch.node_id)))
    for _ in range(20):
        world.now += 1.0
        world.step(InstancesListed("spot", (bare,)))
    assert world.phases() == {launch.node_id: "booting"}
    assert len(world.actions(LaunchNode)) == 1


def test_a_fresh_machine_that_no_list_shows_is_waited_for_and_then_still_ended() -> None:
    world = World([model()], [pool(visibility_grace=60.0)])
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    world.pending.clear()
    world.step(LaunchAnswered(launch.node_id, machine("i-1", launch.node_id)))
    for _ in range(55):
        world.now += 1.0
        world.step(InstancesListed("spot", ()))
    assert world.phases() == {launch.node_id: "booting"}
    for _ in range(10):
        world.now += 1.0
        world.step(InstancesListed("spot", ()))
    assert world.phases() == {launch.node_id: "terminating"}
    assert "i-1" in ended(world), "no list need ever show it"


def test_a_launch_under_way_is_never_settled_by_lists() -> None:
    world = World([model()], [pool(visibility_grace=10.0)])
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    world.pending.clear()
    world.step(DownRequested("test"))
    for _ in range(100):
        world.now += 1.0
        world.step(InstancesListed("spot", ()))
    assert world.phases() == {launch.node_id: "terminating"}, "its call is still out"
    world.step(LaunchFailed(launch.node_id, "Unavailable", "timed out", False))
    for _ in range(9):
        world.now += 1.0
        world.step(InstancesListed("spot", ()))
    assert world.phases() == {launch.node_id: "terminating"}, "it may just have been made"
    for _ in range(5):
        world.now += 1.0
        world.step(InstancesListed("spot", ()))
    assert world.phases() == {}


def test_the_answer_about_one_machine_does_not_end_a_node_that_has_another() -> None:
    world = serving()
    [node_id] = world.phases()
    world.step(TerminateAnswered(node_id, "i-of-yesterday", gone=True))
    assert world.phases() == {node_id: "ready"}
    world.step(DownRequested("test"))
    world.settle(rounds=1)
    world.step(TerminateAnswered(node_id, "i-of-yesterday", gone=True))
    world.now += 30.0
    world.step(*world.listings())
    assert world.phases() != {}, "its own machine is still there"


def test_machines_of_another_ledger_are_never_touched_and_nothing_is_bought_beside_them() -> None:
    world = World([model()], [pool(guard_age=1.0)])
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN, at=900.0)
    world.start()
    world.settle(rounds=30)
    assert world.actions(LaunchNode) == []
    assert ended(world) == []
    [told] = world.core.status(world.now)["pools"][0]["foreign_machines"]
    assert (told["instance_id"], told["ledger_id"]) == ("i-f", FOREIGN)
    assert told["age"] > 100


def test_adopted_machines_are_used_if_they_join_and_the_wish_is_met_by_them() -> None:
    world = World([model()], [pool()])
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN)
    world.start()
    world.step(AdoptRequested(FOREIGN, "uid 0"))
    world.settle(rounds=5)
    assert world.phases() == {"n-f": "ready"}
    assert len(world.open_endpoints()) == 1
    assert world.actions(LaunchNode) == []


def test_adopted_machines_that_do_not_join_are_ended_also_after_a_restart() -> None:
    world = World([model()], [pool(boot_timeout=100.0)])
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN)
    world.instances["i-g"] = machine("i-g", None, FOREIGN)
    world.start()
    world.step(AdoptRequested(FOREIGN, "uid 0"))
    for _ in range(20):
        world.flow(boot=False)
    world.restart()
    for _ in range(40):
        world.flow(seconds=5.0, boot=False)
    assert {"i-f", "i-g"} <= set(ended(world))
    assert not {"i-f", "i-g"} & set(world.instances)


def test_only_the_ledger_that_people_named_is_adopted() -> None:
    world = World([model()], [pool()])
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN)
    world.instances["i-h"] = machine("i-h", "n-h", "a-third-ledger")
    world.start()
    world.step(AdoptRequested(FOREIGN, "uid 0"))
    world.settle(rounds=60)
    assert "i-h" in world.instances
    assert ended(world) == []
    assert world.core.status(world.now)["pools"][0]["foreign"] == "a-third-ledger"


def test_machines_of_a_pool_that_is_no_longer_configured_are_kept_and_reported() -> None:
    world = World([model()], [pool("spot"), pool("other")])
    world.start()
    world.settle(rounds=4)
    [node_id] = world.phases()
    world.now += 1.0
    world.spec = FleetSpec("c", (model(pools=("other",)),), (pool("other"),))
    world.restart()
    for _ in range(30):
        world.now += 10.0
        world.step(world.observed(), world.idle_loads())
    assert world.phases()[node_id] == "ready"
    assert world.core.status(world.now)["unmanaged"] == [{"node_id": node_id, "pool": "spot"}]
    assert ended(world) == []


def test_two_pools_of_one_account_do_not_take_each_others_machines_for_orphans() -> None:
    both = (pool("spot", guard_age=1.0), pool("other", guard_age=1.0))
    world = World([model(pools=("spot", "other"))], both, [offering(), offering("other", price=9)])
    world.start()
    world.settle(rounds=4)
    [mine] = world.instances.values()
    for _ in range(60):
        world.now += 1.0
        lists = [InstancesListed(name, (mine,)) for name in ("spot", "other")]
        world.step(*lists, world.observed())
    assert ended(world) == []
    assert len(world.open_endpoints()) == 1


def test_a_head_that_lost_its_memory_gets_longer_to_see_its_nodes_again() -> None:
    world = World([model(min_replicas=3, max_replicas=3)], [pool(loss_grace=10.0)])
    world.start()
    world.settle(rounds=6)
    assert len(world.open_endpoints()) == 3
    for _ in range(40):
        world.now += 1.0
        silent = replace(world.observed(), nodes=())
        world.step(*world.listings(), silent)
    assert list(world.phases().values()) == ["ready"] * 3
    world.settle(rounds=3)
    assert len(world.open_endpoints()) == 3
    assert ended(world) == []


def test_terminating_goes_on_until_the_provider_says_not_found() -> None:
    world = serving()
    [key] = world.instances
    [node_id] = world.phases()
    world.step(DownRequested("test"))
    world.now += 25.0
    world.step(*world.listings())
    for _ in range(100):
        world.now += 3.0
        todo, world.pending = world.pending, []
        answers = [
            TerminateAnswered(node_id, key, gone=False)
            for a in todo
            if isinstance(a, TerminateNode)
        ]
        world.step(*answers, InstancesListed("spot", ()))
    assert world.phases() == {node_id: "terminating"}
    assert len(ended(world)) > 50
    world.step(TerminateAnswered(node_id, key, gone=True))
    world.step(InstancesListed("spot", ()))
    assert world.phases() == {}


def test_one_not_found_ends_nothing_before_a_list_agrees() -> None:
    world = serving()
    [machine_there] = world.instances.values()
    [node_id] = world.phases()
    world.step(DownRequested("test"))
    world.now += 25.0
    world.step(*world.listings())
    world.now += 1.0
    world.pending.clear()
    world.step(TerminateAnswered(node_id, machine_there.instance_id, gone=True))
    assert world.phases() == {node_id: "terminating"}
    world.now += 5.0
    world.step(InstancesListed("spot", (), took=9.0))
    assert world.phases() == {node_id: "terminating"}, "that list is older than the answer"
    plan = world.step(InstancesListed("spot", (machine_there,)))
    assert [type(a) for a in plan.actions] == [TerminateNode], "it is there: asked again"


def unsettled(world: World) -> str:
    told: str = world.core.status(world.now)["pools"][0]["unsettled"]
    return told


def test_nothing_is_called_empty_before_lists_could_show_the_last_launch() -> None:
    world = World([model()], [pool(visibility_grace=60.0)])
    assert world.step(Configured(world.spec))
    assert unsettled(world), "no list yet"
    world.start()
    world.settle(rounds=3)
    world.step(DownRequested("test"))
    assert unsettled(world), "that list is older than the wish"
    for _ in range(45):
        world.settle()
    assert world.phases() == {}
    assert "no list shows yet" in unsettled(world)
    for _ in range(30):
        world.settle()
    assert unsettled(world) == ""


def test_our_own_nodes_are_ended_also_beside_machines_of_another_ledger() -> None:
    world = serving()
    [mine] = world.instances
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN)
    world.instances["i-lost"] = machine("i-lost", "n-of-an-earlier-life")
    world.settle(rounds=1)
    [lost] = world.core.status(world.now)["pools"][0]["orphans"]
    assert (lost["seconds_left"], lost["held"]) == (None, "machines of another ledger are there")
    world.step(DownRequested("test"))
    world.settle(rounds=60)
    assert set(ended(world)) == {mine}, "what no node stands for is left alone until it is clear"


def test_a_later_life_of_our_ledger_is_another_controller_and_nothing_of_it_is_touched() -> None:
    world = serving(guard_age=1.0)
    theirs = "n-ledger01-2-7"
    world.instances["i-b"] = machine("i-b", theirs)
    world.settle(rounds=90)
    assert ended(world) == []
    [told] = world.core.status(world.now)["pools"][0]["foreign_machines"]
    assert told["ledger_id"] == f"{LEDGER}+rival"
    world.step(AdoptRequested(f"{LEDGER}+rival", "uid 0"))
    world.settle(rounds=3)
    assert theirs in world.phases(), "people say that it is gone: its machines are ours"


def test_what_a_ledger_that_was_put_back_does_not_know_is_ended_also_if_clocks_differ() -> None:
    world = serving(guard_age=1.0)
    world.restart()
    known = set(world.instances)
    world.instances["i-b"] = machine("i-b", "n-ledger01-1-8", at=world.now + 600.0)
    world.settle(rounds=60)
    assert set(ended(world)) == {"i-b"}, "it was there from the beginning, whatever its clock says"
    assert known <= set(world.instances)


def test_an_earlier_life_that_goes_on_to_launch_is_another_controller() -> None:
    world = serving(guard_age=1.0)
    world.restart()
    late, theirs = "n-ledger01-1-8", "n-ledger01-1-9"
    world.instances["i-late"] = machine("i-late", late, at=world.now + 5.0)
    world.settle(rounds=5)
    world.now += 100.0
    world.instances["i-theirs"] = machine("i-theirs", theirs, at=world.now)
    world.settle(rounds=90)
    assert set(ended(world)) == {"i-late"}, "it may have been asked for before this life"
    [told] = world.core.status(world.now)["pools"][0]["foreign_machines"]
    assert (told["node_id"], told["ledger_id"]) == (theirs, f"{LEDGER}+rival")


def test_an_adopted_ledger_that_goes_on_to_launch_has_a_living_owner() -> None:
    world = World([model()], [pool(guard_age=1.0, boot_timeout=10.0)])
    world.instances["i-f"] = machine("i-f", "n-f", FOREIGN, at=900.0)
    world.start()
    world.step(AdoptRequested(FOREIGN, "uid 0"))
    world.settle(rounds=5)
    world.instances["i-new"] = machine("i-new", "n-f2", FOREIGN, at=world.now + 120.0)
    world.now += 130.0
    world.settle(rounds=60)
    assert "i-new" in world.instances
    assert "i-new" not in ended(world)
    assert world.core.status(world.now)["pools"][0]["foreign"] == f"{FOREIGN}+rival"


def test_a_namesake_in_another_pool_does_not_hide_a_machine() -> None:
    both = (pool("spot", guard_age=1.0), pool("other", guard_age=1.0))
    world = World([model(pools=("spot", "other"))], both, [offering(), offering("other", price=9)])
    world.start()
    world.settle(rounds=4)
    [mine] = world.instances.values()
    namesake = machine("i-of-a-lost-life", mine.node_id)
    for _ in range(30):
        world.now += 1.0
        lists = [InstancesListed("spot", (mine,)), InstancesListed("other", (namesake,))]
        world.step(*lists, world.observed())
    assert set(ended(world)) == {"i-of-a-lost-life"}


def test_configuration_alone_never_ends_a_machine() -> None:
    world = serving()
    for _ in range(3):
        world.step(Configured(world.spec))
    assert ended(world) == []
