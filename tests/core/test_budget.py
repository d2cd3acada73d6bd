"""The money cap is never passed, what it blocks is said, and what was spent is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticd.core.actions import LaunchNode
from elasticd.core.budget import committed
from elasticd.core.decide import Core
from elasticd.core.events import (
    Configured,
    DayTold,
    DownRequested,
    DrainRequested,
    LaunchAnswered,
)
from elasticd.core.specs import Budget
from elasticd.provider import Instance, InstanceState
from tests.core.world import LEDGER, World, model, offering, pool

USD = 1_000_000
DAY = 86_400.0


def world_with(budget: Budget, replicas: int = 6, price: float = 1.0, **changes: Any) -> World:
    world = World(
        [model(min_replicas=replicas, max_replicas=replicas)],
        [pool(max_nodes=10)],
        changes.pop("offerings", [offering(price=price)]),
    )
    world.spec = replace(world.spec, budget=budget)
    return world


def spend(world: World) -> dict[str, Any]:
    told: dict[str, Any] = world.core.status(world.now)["spend"]
    return told


def test_the_rent_per_hour_never_passes_its_cap_and_the_reason_is_said() -> None:
    world = world_with(Budget(max_per_hour=5 * USD // 2))
    world.start()
    world.settle(rounds=10)
    assert len(world.instances) == 2
    assert spend(world)["per_hour"] == 2 * USD
    blocked = world.core.status(world.now)["models"][0]["blocked"]
    assert "max_per_hour 2.50 USD" in blocked
    assert "max_per_hour" in spend(world)["blocked"]


def test_a_machine_that_is_ending_still_counts() -> None:
    world = world_with(Budget(max_per_hour=2 * USD), replicas=2)
    world.start()
    world.settle(rounds=5)
    [first, _] = list(world.instances)
    node_id = world.instances[first].node_id or ""
    world.step(DrainRequested(node_id, 30.0, "test"))
    for _ in range(10):
        world.now += 1.0
        world.step(*world.listings(), world.observed())
    assert len(world.actions(LaunchNode)) == 2, "no replacement before the money is free"
    world.settle(rounds=40)
    assert len(world.instances) == 2


def test_of_several_offers_those_above_the_cap_are_left_out() -> None:
    offers = [offering(price=3.0, gpus=4), offering(zone="b", price=1.0)]
    world = world_with(Budget(max_per_hour=2 * USD), replicas=1, offerings=offers)
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    assert [o.price_micros for o in launch.offerings] == [1 * USD]


def test_the_dearest_alternative_counts_until_the_provider_has_chosen() -> None:
    offers = [offering(price=1.0), offering(zone="b", price=2.0)]
    world = world_with(Budget(max_per_hour=3 * USD), replicas=2, offerings=offers)
    world.start()
    launches = [a for a in world.pending if isinstance(a, LaunchNode)]
    assert [[o.price_micros for o in a.offerings] for a in launches] == [
        [1 * USD, 2 * USD],
        [1 * USD],
    ]
    answer = Instance("i-1", launches[0].node_id, LEDGER, InstanceState.RUNNING, offers[0], "h")
    world.step(LaunchAnswered(launches[0].node_id, answer))
    assert committed(world.core._state) == 2 * USD


def test_other_currencies_are_converted_and_one_without_a_rate_is_not_bought() -> None:
    yuan = replace(offering(price=10.0), currency="CNY")
    world = world_with(Budget(max_per_hour=2 * USD), offerings=[yuan])
    world.start()
    assert world.actions(LaunchNode) == []
    assert "no rate for CNY" in world.core.status(world.now)["models"][0]["blocked"]
    rated = Budget(max_per_hour=3 * USD, rates=(("CNY", 140_000),))
    world.step(Configured(replace(world.spec, budget=rated)))
    assert len(world.actions(LaunchNode)) == 2
    assert spend(world)["per_hour"] == 2_800_000


def test_what_costs_in_a_currency_without_a_rate_stops_buying_since_nobody_can_sum_up() -> None:
    yuan = replace(offering(price=1.0), currency="CNY")
    world = world_with(Budget(), replicas=1, offerings=[yuan])
    world.start()
    world.settle(rounds=4)
    world.offerings = (offering(price=1.0, zone="b"),)
    wanted = replace(
        world.spec.models[0],
        scaling=replace(world.spec.models[0].scaling, min_replicas=2, max_replicas=2),
    )
    world.spec = replace(world.spec, models=(wanted,), budget=Budget(max_per_hour=100 * USD))
    world.step(Configured(world.spec))
    world.settle(rounds=4)
    assert len(world.actions(LaunchNode)) == 1
    assert spend(world)["unrated"] == ["CNY"]
    assert spend(world)["per_hour"] is None


def test_without_a_budget_nothing_is_capped() -> None:
    world = world_with(Budget())
    world.start()
    world.settle(rounds=5)
    assert len(world.instances) == 6


def test_a_cap_that_is_lowered_gives_machines_back_the_dearest_first() -> None:
    offers = [offering(price=1.0), offering(zone="b", price=1.5)]
    world = world_with(Budget(), replicas=3, offerings=offers[:1])
    world.start()
    world.settle(rounds=5)
    key = sorted(world.instances)[0]
    world.instances[key] = replace(world.instances[key], offering=offers[1])
    world.settle(rounds=1)
    assert spend(world)["per_hour"] == 3_500_000
    world.spec = replace(world.spec, budget=Budget(max_per_hour=2 * USD))
    world.step(Configured(world.spec))
    world.settle(rounds=200)
    assert key not in world.instances
    assert len(world.instances) == 2
    assert len(world.open_endpoints()) == 2


def test_a_node_that_still_drains_for_a_cap_stays_when_the_cap_is_raised_again() -> None:
    world = world_with(Budget(), replicas=3)
    world.start()
    world.settle(rounds=5)
    world.spec = replace(world.spec, budget=Budget(max_per_hour=2 * USD))
    world.step(Configured(world.spec))
    assert sorted(world.phases().values()) == ["draining", "ready", "ready"]
    assert len(world.open_endpoints()) == 2
    world.spec = replace(world.spec, budget=Budget(max_per_hour=3 * USD))
    world.step(Configured(world.spec))
    assert len(world.open_endpoints()) == 3
    world.settle(rounds=200)
    assert len(world.actions(LaunchNode)) == 3, "nothing was bought in its place"


def test_a_node_that_the_budget_allows_again_stays_out_of_a_pool_that_was_closed() -> None:
    world = world_with(Budget(), replicas=2)
    world.start()
    world.settle(rounds=5)
    allowed = world.spec
    world.spec = replace(allowed, budget=Budget(max_per_hour=1 * USD))
    world.step(Configured(world.spec))
    assert sorted(world.phases().values()) == ["draining", "ready"]
    world.spec = replace(allowed, pools=(pool(max_nodes=0),))
    for _ in range(2):
        world.step(Configured(world.spec))
        assert list(world.phases().values()) == ["draining", "draining"]


def day(world: World, hours_left: float = 24.0) -> DayTold:
    return DayTold(world.now - (24.0 - hours_left) * 3600.0, world.now + hours_left * 3600.0)


def test_nothing_is_bought_under_a_day_cap_before_the_day_is_known() -> None:
    world = world_with(Budget(max_per_day=100 * USD))
    world.start()
    assert world.actions(LaunchNode) == []
    assert "not known yet" in world.core.status(world.now)["models"][0]["blocked"]
    world.step(day(world))
    assert len(world.actions(LaunchNode)) == 6


def test_the_rent_of_a_day_never_passes_its_cap_and_the_next_day_serves_again() -> None:
    world = world_with(Budget(max_per_day=12 * USD), replicas=4)
    world.step(day(world))
    world.start()
    began = world.now
    most = 0
    while world.now < began + 23 * 3600.0:
        world.settle(seconds=30.0)
        most = max(most, spend(world)["today"])
    assert 11 * USD < most <= 12 * USD
    assert world.instances == {}
    assert "max_per_day" in world.core.status(world.now)["models"][0]["blocked"]
    world.now = began + DAY
    world.step(DayTold(began + DAY, began + 2 * DAY))
    world.settle(rounds=5)
    assert len(world.open_endpoints()) == 4
    assert spend(world)["today"] < USD


def test_a_day_that_ends_before_the_cap_is_reached_takes_nobody_out_of_service() -> None:
    world = world_with(Budget(max_per_day=9 * USD), replicas=4)
    world.step(day(world, hours_left=2.0))
    world.start()
    for _ in range(239):
        world.settle(seconds=30.0)
    assert len(world.open_endpoints()) == 4


def test_spend_is_counted_by_pool_and_model_also_while_no_controller_runs() -> None:
    world = world_with(Budget(), replicas=2)
    world.step(day(world))
    world.start()
    for _ in range(121):
        world.settle(seconds=30.0)
    told = spend(world)
    assert abs(told["pools"]["spot"]["today"] - 2 * USD) < USD // 20
    assert told["models"]["m"]["per_hour"] == 2 * USD
    assert abs(told["models"]["m"]["today"] - 2 * USD) < USD // 20
    world.now += 3600.0
    world.restart()
    world.step(*world.listings())
    assert abs(spend(world)["pools"]["spot"]["today"] - 4 * USD) < USD // 10


def test_what_ended_machines_have_cost_is_known_after_a_crash_in_the_next_moment() -> None:
    world = world_with(Budget(max_per_day=100 * USD), replicas=3)
    world.step(day(world))
    world.start()
    world.settle(rounds=5)
    world.settle(seconds=47.0)
    world.step(DownRequested("test"))
    for _ in range(200):
        world.settle(seconds=1.0)
        if not world.phases():
            break
    assert world.phases() == {}
    known = spend(world)["today"]
    assert known > 0
    world.restart()
    assert spend(world)["today"] == known


def test_rows_of_spend_are_written_once_a_minute_and_never_while_nothing_costs() -> None:
    world = world_with(Budget(), replicas=1)
    world.start()
    world.settle(rounds=5)
    world.core.changed_rows()
    written = 0
    for _ in range(600):
        world.now += 1.0
        world.core.step(world.now, [*world.listings(), world.observed()])
        written += sum(row.kind == "spend" for row in world.core.changed_rows())
    assert 8 <= written <= 11
    free = Core(LEDGER, 1)
    for moment in range(600):
        free.step(1000.0 + moment, [Configured(world.spec)])
        rows = [row for row in free.changed_rows() if row.kind == "spend"]
        assert not rows or moment == 0
