"""Whoever tells that a machine will go: one drain, the earliest end, and back when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.actions import LaunchNode
from elasticd.core.events import (
    ClusterObserved,
    Configured,
    InstancesListed,
    NodeSeen,
    NoticeArrived,
    NoticeSeen,
    NoticeTakenBack,
)
from elasticd.core.notices import PROVEN, UNHURRIED
from elasticd.provider import InstanceState
from tests.core.world import World, model, offering, pool

GOES = NoticeSeen("ec2/n/interruption/x", "interruption", 120.0)
HINT = NoticeSeen("ec2/n/rebalance/x", "rebalance")


def serving(rebalance: str = "replace_first", max_nodes: int = 4, **changes: object) -> World:
    """One replica for each `min_replicas`, each on a node that has proven itself."""
    world = World([model(**changes)], [pool(max_nodes=max_nodes, rebalance=rebalance)])
    world.start()
    world.settle(rounds=6)
    world.settle(seconds=PROVEN)
    return world


def first_node(world: World) -> str:
    return next(iter(world.phases()))


def replica_on(world: World, node_id: str) -> str:
    return next(r.replica_id for r in world.replicas.values() if r.node_id == node_id)


def hear(world: World, *notices: NoticeSeen, node: str = "") -> str:
    """The machine hears these, and no others."""
    node = node or first_node(world)
    world.notices[node] = notices
    world.step(world.observed())
    return node


def left(world: World, node_id: str) -> float:
    nodes = {n["id"]: n for n in world.core.status(world.now)["nodes"]}
    return float(nodes[node_id]["seconds_left"])


def launches(world: World) -> int:
    return len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)})


def test_a_machine_that_hears_of_its_end_drains_and_is_replaced_in_the_same_step() -> None:
    world = serving()
    node = hear(world, GOES)
    assert world.phases()[node] == "draining"
    assert launches(world) == 2
    assert left(world, node) == pytest.approx(120.0)


def test_the_same_notice_again_changes_nothing_also_with_less_time_left() -> None:
    world = serving()
    node = hear(world, GOES)
    world.now += 10
    world.notices[node] = (replace(GOES, seconds_left=110.0),)
    assert world.step(world.observed()).actions == ()
    assert left(world, node) == pytest.approx(110.0)


def test_a_notice_that_nobody_took_back_holds_while_the_machine_is_silent() -> None:
    world = serving()
    node = hear(world, GOES)
    for seen in (
        NodeSeen(node, True, 1),
        NodeSeen(node, None),
        NodeSeen(node, True, 1, notices=(), notices_complete=False),
    ):
        world.step(ClusterObserved((seen,), tuple(world.replicas.values()), True))
    assert world.phases()[node] == "draining"


def test_a_notice_that_is_over_puts_the_node_back_also_if_nobody_listened_meanwhile() -> None:
    world = serving()
    node = hear(world, GOES)
    replica = replica_on(world, node)
    world.restart()
    world.step(*world.listings(), world.idle_loads())
    hear(world, node=node)
    assert world.phases()[node] == "ready"
    assert replica in world.open_endpoints()


def test_a_machine_takes_back_only_what_it_told_itself() -> None:
    world = serving()
    node = first_node(world)
    instance = next(iter(world.instances))
    world.step(NoticeArrived("sqs-1", "spot", instance, "interruption", 100.0))
    hear(world, GOES)
    hear(world)
    assert world.phases()[node] == "draining"
    world.step(NoticeTakenBack("sqs-1", "spot", instance))
    assert world.phases()[node] == "ready"


def test_the_earliest_end_wins_whoever_tells_it() -> None:
    world = serving()
    node = hear(world, GOES)
    instance = next(iter(world.instances))
    world.step(NoticeArrived("sqs-1", "spot", instance, "interruption", 40.0))
    assert left(world, node) == pytest.approx(40.0)
    world.step(NoticeArrived("sqs-2", "spot", instance, "maintenance", 400.0))
    assert left(world, node) == pytest.approx(40.0)


def test_one_end_told_by_everybody_is_one_drain_and_one_replacement() -> None:
    world = serving()
    node = hear(world, HINT)
    instance = next(iter(world.instances))
    hear(world, HINT, GOES)
    for _ in range(2):
        world.step(NoticeArrived("sqs-1", "spot", instance, "interruption", 110.0))
    stopping = replace(world.instances[instance], state=InstanceState.STOPPING)
    world.step(InstancesListed("spot", (stopping,)))
    world.step(ClusterObserved((NodeSeen(node, False),), (), True))
    drains = [r for plan in world.log for r in plan.reasons if "→ draining" in r.text]
    assert len([r for r in drains if r.subject == f"node:{node}"]) == 1
    assert launches(world) == 2


def test_fifty_notices_for_machines_that_nobody_knows_harm_no_other() -> None:
    world = serving()
    for n in range(50):
        world.step(NoticeArrived(f"x-{n}", "spot", "i-unknown", "interruption", 120.0))
    world.step(ClusterObserved((NodeSeen("n-unknown", True, notices=(GOES,)),), (), False))
    assert list(world.phases().values()) == ["ready"]
    node = hear(world, GOES)
    assert world.phases()[node] == "draining"


def test_a_machine_that_hears_of_its_end_before_it_has_joined_is_given_up() -> None:
    world = World()
    world.start()
    world.flow(boot=False)
    node = hear(world, GOES)
    assert world.phases()[node] == "terminating"


def test_a_notice_of_the_machine_without_a_time_is_without_any_time_left() -> None:
    world = serving()
    node = hear(world, replace(GOES, seconds_left=None))
    assert world.phases().get(node) != "ready"
    assert world.open_endpoints() == []


def test_a_hint_that_the_pool_ignores_leaves_everything_as_it_is_and_is_told() -> None:
    world = serving("ignore")
    table = world.table
    node = hear(world, HINT)
    world.settle(rounds=3, seconds=60.0)
    assert world.phases() == {node: "ready"}
    assert world.table is table
    assert launches(world) == 1
    [shown] = world.core.status(world.now)["nodes"]
    assert shown["hint"] == "rebalance hint: ignored, as its pool says"


def test_a_hint_in_a_pool_that_drains_is_an_interruption_without_haste() -> None:
    world = serving("drain")
    node = hear(world, HINT)
    assert world.phases()[node] == "draining"
    assert launches(world) == 2
    assert left(world, node) == pytest.approx(UNHURRIED)


def test_where_every_machine_is_hinted_at_they_do_not_drain_one_after_the_other() -> None:
    world = World([model()], [pool(rebalance="drain")])
    world.start()
    for _ in range(20):
        world.notices = dict.fromkeys(world.phases(), (HINT,))
        world.settle(seconds=25.0)
    assert launches(world) == 1
    [node] = world.phases()
    [shown] = world.core.status(world.now)["nodes"]
    assert shown["hint"].endswith("once it has served 10 minutes")
    world.settle(seconds=PROVEN)
    assert world.phases()[node] == "draining", "it has been of use"


def test_a_young_node_drains_before_the_end_that_its_hint_tells() -> None:
    world = World([model()], [pool(rebalance="drain")])
    world.start()
    world.settle(rounds=6)
    node = hear(world, replace(HINT, seconds_left=300.0))
    assert world.phases()[node] == "ready"
    world.now += 180.0
    world.step()
    assert world.phases()[node] == "draining"
    assert left(world, node) == pytest.approx(120.0)


def test_a_hint_with_an_end_drains_until_then() -> None:
    world = serving("drain")
    node = hear(world, replace(HINT, seconds_left=300.0))
    assert left(world, node) == pytest.approx(300.0)


def test_a_hint_has_the_replacement_ready_before_any_route_is_closed() -> None:
    world = serving(drain_timeout=45.0)
    [old] = world.open_endpoints()
    node = hear(world, HINT)
    assert launches(world) == 2, "asked for at once"
    assert world.open_endpoints() == [old]
    for _ in range(4):
        world.flow()  # it boots, joins and starts its engine, which is not ready yet
        assert world.open_endpoints() == [old]
        assert world.phases()[node] == "ready"
    world.load_all()
    world.flow()
    [new] = world.open_endpoints()
    assert new != old
    assert world.phases()[node] == "draining"
    assert left(world, node) == pytest.approx(45.0)
    world.settle(rounds=6)
    assert world.phases().get(node) is None
    assert launches(world) == 2


def test_a_hint_without_room_for_a_replacement_leaves_the_node_serving() -> None:
    world = serving(max_nodes=1)
    [old] = world.open_endpoints()
    node = hear(world, HINT)
    world.settle(rounds=5, seconds=300.0)
    assert world.phases() == {node: "ready"}
    assert world.open_endpoints() == [old]


def test_a_replacement_never_goes_to_the_node_that_is_to_be_replaced() -> None:
    world = World([model()], [pool()], [offering(gpus=2)])
    world.start()
    world.settle(rounds=6)
    world.settle(seconds=PROVEN)
    node = hear(world, HINT)
    world.settle(rounds=6)
    assert world.phases().get(node) in {"terminating", None}
    assert node not in {r.node_id for r in world.replicas.values()}
    assert len(world.open_endpoints()) == 1


def test_of_several_hinted_nodes_each_goes_when_its_own_replacement_is_ready() -> None:
    world = serving(min_replicas=2, max_replicas=2)
    first, second = world.phases()
    world.notices[first] = world.notices[second] = (HINT,)
    world.step(world.observed())
    assert launches(world) == 4
    fewest = 2
    for _ in range(8):
        world.settle()
        fewest = min(fewest, len(world.open_endpoints()))
    assert fewest == 2
    assert first not in world.phases()
    assert second not in world.phases()
    assert launches(world) == 4


def test_a_hint_that_is_withdrawn_keeps_the_node_and_sends_the_newcomer_away() -> None:
    world = serving()
    [old] = world.open_endpoints()
    node = hear(world, HINT)
    hear(world)
    world.settle(rounds=4)
    assert world.open_endpoints() == [old]
    assert world.phases()[node] == "ready"
    assert len([r for r in world.replicas.values() if r.phase == "ready"]) == 1


def test_a_young_node_is_not_replaced_for_a_hint_or_replacements_would_never_end() -> None:
    world = World([model()], [pool()])
    world.start()
    world.settle(rounds=6)
    node = hear(world, HINT)
    world.settle(rounds=3)
    assert launches(world) == 1
    assert world.phases() == {node: "ready"}
    plan = world.step()
    assert plan.wake_at is not None
    world.now = plan.wake_at + PROVEN
    world.step()
    assert launches(world) == 2


def test_an_interruption_after_a_hint_hurries_and_its_withdrawal_leaves_the_hint() -> None:
    world = serving()
    node = hear(world, HINT)
    hear(world, HINT, GOES)
    assert world.phases()[node] == "draining"
    hear(world, HINT)
    assert world.phases()[node] == "ready"
    shown = world.core.status(world.now)["nodes"][0]
    assert shown["hint"].startswith("rebalance hint")


def test_a_hint_with_an_end_drains_in_time_although_nothing_replaces_it() -> None:
    world = serving(max_nodes=1)
    node = hear(world, replace(HINT, seconds_left=400.0))
    world.now += 200
    world.step()
    assert world.phases()[node] == "ready"
    world.now += 100
    world.step()
    assert world.phases()[node] == "draining"
    assert left(world, node) == pytest.approx(100.0)


def test_a_reload_changes_what_a_hint_leads_to() -> None:
    world = serving("ignore")
    node = hear(world, HINT)
    assert world.phases()[node] == "ready"
    world.spec = replace(world.spec, pools=(pool(rebalance="drain"),))
    world.step(Configured(world.spec))
    assert world.phases()[node] == "draining"


def test_a_hint_outlives_the_controller() -> None:
    world = serving()
    node = hear(world, HINT)
    world.restart()
    world.step(*world.listings(), world.observed())
    assert launches(world) == 2
    assert world.phases()[node] == "ready"
