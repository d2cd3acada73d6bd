"""What refusals of a provider lead to: each class its own pause, and never a hammering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticd.core.actions import LaunchNode, ReadBootLog, TerminateNode
from elasticd.core.decide import Core
from elasticd.core.events import (
    BootLogRead,
    ClusterObserved,
    Configured,
    Event,
    LaunchFailed,
    ListFailed,
    NodeSeen,
    OfferingsListed,
)
from tests.core.world import LEDGER, World, model, offering, pool

Answer = Callable[[LaunchNode], Event]


def refusing(error: str, definite: bool = True) -> Answer:
    return lambda launch: LaunchFailed(launch.node_id, error, f"the vendor says {error}", definite)


def live(world: World, answer: Answer, seconds: float, tick: float = 1.0) -> list[LaunchNode]:
    """Time passes while every launch has this answer; the launches that were asked for."""
    asked: list[LaunchNode] = []
    for _ in range(int(seconds / tick)):
        world.now += tick
        todo, world.pending = world.pending, []
        launches = [a for a in todo if isinstance(a, LaunchNode)]
        asked += launches
        world.step(*map(answer, launches), *world.listings())
    return asked


def troubles(world: World, name: str = "spot") -> dict[str, dict[str, object]]:
    told = world.core.status(world.now)
    [found] = [p for p in told["pools"] if p["name"] == name]
    return {t["kind"]: t for t in found["troubles"]}


def test_an_exhausted_market_is_asked_a_few_times_and_not_hammered() -> None:
    world = World([model(min_replicas=3, max_replicas=3)], [pool(max_nodes=8)])
    world.start()
    asked = live(world, refusing("NoCapacity"), 600.0)
    assert 4 <= len(asked) <= 10
    assert troubles(world)["stock"]["text"]
    asked_in_an_hour = live(world, refusing("NoCapacity"), 3600.0, tick=5.0)
    assert len(asked_in_an_hour) <= 6


def test_alternatives_are_tried_in_the_same_pass() -> None:
    both = (pool("spot"), pool("other"))
    offers = [offering(), offering("other", price=2.0)]
    world = World([model(pools=("spot", "other"))], both, offers)
    world.start()
    [first] = world.pending
    assert isinstance(first, LaunchNode)
    assert first.pool == "spot"
    world.pending.clear()
    world.step(LaunchFailed(first.node_id, "NoCapacity", "none", True))
    assert [a.pool for a in world.pending if isinstance(a, LaunchNode)] == ["other"]


def test_a_refusal_is_forgotten_with_time() -> None:
    world = World()
    world.start()
    live(world, refusing("NoCapacity"), 900.0)
    before = troubles(world)["stock"]["count"]
    assert isinstance(before, int)
    assert before >= 5
    world.step(Configured(world.spec))
    world.now += 6 * 3600.0
    world.pending.clear()
    world.step(*world.listings())
    assert "stock" not in troubles(world)


def test_a_quota_sets_the_whole_family_aside_and_nothing_else() -> None:
    world = World(
        [model(min_replicas=2, max_replicas=2)],
        [pool(max_nodes=8)],
        [offering(zone="a"), offering(zone="b", price=0.6), offering(kind="A10G", price=0.7)],
    )
    world.step(Configured(world.spec), OfferingsListed("spot", (world.offerings[0],)))
    world.step(*world.listings())
    launch = world.pending[0]
    assert isinstance(launch, LaunchNode)
    world.pending.clear()
    cheapest = LaunchNode(launch.node_id, launch.pool, launch.offerings[:1])
    node = world.core._state.fleet.node(launch.node_id)
    assert node is not None
    world.core._state.fleet.put_node(replace(node, offerings=cheapest.offerings))
    world.step(LaunchFailed(launch.node_id, "QuotaExceeded", "0 vCPUs", True))
    aside = {a["offering"] for a in world.core.status(world.now)["pools"][0]["aside"]}
    assert aside == {o.id for o in world.offerings if o.gpu_kind == "L4"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("NoCapacity", "stock"),
        ("QuotaExceeded", "quota"),
        ("PriceTooHigh", "price"),
        ("AuthFailed", "auth"),
        ("BillingBlocked", "billing"),
        ("Rejected", "rejected"),
    ],
)
def test_every_refusal_is_told_apart(error: str, kind: str) -> None:
    world = World()
    world.start()
    live(world, refusing(error), 5.0)
    assert set(troubles(world)) == {kind}
    assert error in str(troubles(world)[kind]["text"])
    assert error in world.core.status(world.now)["models"][0]["blocked"]


def test_a_pool_that_is_misconfigured_is_not_asked_again_before_a_reload() -> None:
    world = World()
    world.start()
    assert len(live(world, refusing("Rejected"), 7200.0, tick=10.0)) == 1
    assert troubles(world)["rejected"]["seconds_left"] is None
    world.step(Configured(world.spec, retry_failed=True))
    assert len(live(world, refusing("Rejected"), 60.0)) == 1


@pytest.mark.parametrize("error", ["AuthFailed", "BillingBlocked"])
def test_an_account_that_is_refused_is_probed_by_one_machine_now_and_then(error: str) -> None:
    world = World([model(min_replicas=4, max_replicas=4)], [pool(max_nodes=8)])
    world.start()
    first = live(world, refusing(error), 2.0)
    assert len(first) == 4, "they were on their way"
    assert 3 <= len(live(world, refusing(error), 3600.0, tick=5.0)) <= 8


def test_a_list_that_is_refused_stops_buying_and_the_next_list_takes_it_up_again() -> None:
    world = World()
    world.start()
    world.pending.clear()
    world.step(ListFailed("spot", "instances", "AuthFailed", "expired"))
    assert "auth" in troubles(world)
    other = World()
    other.step(Configured(other.spec), *other.listings()[:1])
    other.step(ListFailed("spot", "instances", "AuthFailed", "expired"))
    assert other.pending == []
    other.step(*other.listings())
    assert len(other.pending) == 1
    assert "auth" not in troubles(other)


def test_an_outage_destroys_and_buys_nothing_and_ends_with_a_list() -> None:
    world = World([model(min_replicas=1, max_replicas=2)], [pool(idle_timeout=5.0)])
    world.start()
    world.settle(rounds=5)
    assert len(world.open_endpoints()) == 1
    for _ in range(3):
        world.now += 5.0
        world.step(ListFailed("spot", "instances", "Unavailable", "503"), world.observed())
    assert set(troubles(world)) == {"outage"}
    before = len(world.log)
    world.step(Configured(world.spec))
    for _ in range(200):
        world.now += 5.0
        world.step(
            ListFailed("spot", "instances", "Unavailable", "503"),
            world.observed(),
            world.demand(queued=40),
        )
    acted = [a for plan in world.log[before:] for a in plan.actions]
    assert not [a for a in acted if isinstance(a, LaunchNode | TerminateNode)]
    assert len(world.open_endpoints()) == 1
    world.step(*world.listings(), world.observed())
    assert troubles(world) == {}
    assert len(world.actions(LaunchNode)) == 2, "what was wanted meanwhile is bought now"


def test_a_machine_that_boots_through_an_outage_is_not_blamed_for_it() -> None:
    world = World([model()], [pool(boot_timeout=100.0)])
    world.start()
    world.flow(boot=False)
    world.flow(boot=False)
    for _ in range(60):
        world.now += 5.0
        world.step(ListFailed("spot", "instances", "Unavailable", "503"))
    assert list(world.phases().values()) == ["booting"]
    world.settle(rounds=4)
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1


def test_throttling_is_an_outage_by_its_own_name() -> None:
    world = World()
    world.start()
    for _ in range(4):
        world.now += 1.0
        world.step(ListFailed("spot", "instances", "RateLimited", "slow down"))
    assert set(troubles(world)) == {"throttled"}


def never_joins(world: World, seconds: float, tick: float = 5.0) -> int:
    """Machines come and run and never join Ray; how many were launched."""
    before = len({a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)})
    for _ in range(int(seconds / tick)):
        world.now += tick
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.step(*answers, *world.listings(), ClusterObserved((), (), True))
    after = {a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)}
    return len(after) - before


def test_machines_that_never_join_stop_being_bought_and_cost_a_bounded_sum() -> None:
    world = World([model(min_replicas=2, max_replicas=2)], [pool(boot_timeout=300.0)])
    world.start()
    assert never_joins(world, 24 * 3600.0, tick=20.0) <= 2 + 4 + 8
    assert "failed: " in str(troubles(world)["boot"]["text"])
    assert never_joins(world, 24 * 3600.0, tick=60.0) <= 5
    assert len(world.instances) <= 1


def test_a_restart_does_not_count_failed_boots_anew() -> None:
    world = World([model()], [pool(boot_timeout=300.0)])
    world.start()
    never_joins(world, 12 * 3600.0, tick=20.0)
    world.now += 1.0
    world.restart()
    assert never_joins(world, 1800.0) == 0
    assert "failed: " in str(troubles(world)["boot"]["text"])
    plan = world.step(Configured(world.spec, retry_failed=True))
    assert [type(a) for a in plan.actions if isinstance(a, LaunchNode)] == [LaunchNode]


def test_what_a_machine_that_failed_has_printed_is_kept() -> None:
    world = World([model()], [pool(boot_timeout=60.0)])
    world.start()
    never_joins(world, 75.0)
    [order] = world.actions(ReadBootLog)
    assert isinstance(order, ReadBootLog)
    world.step(BootLogRead(order.node_id, ("pip: no space left",)))
    [node] = [n for n in world.core.status(world.now)["nodes"] if n["id"] == order.node_id]
    assert node["log_tail"] == ["pip: no space left"]


def test_a_machine_that_ends_itself_while_booting_counts_as_a_failed_boot() -> None:
    world = World()
    world.start()
    for _ in range(400):
        world.flow(seconds=3.0, boot=False)
        world.instances.clear()
    launched = {a.node_id for a in world.actions(LaunchNode) if isinstance(a, LaunchNode)}
    assert len(launched) <= 6
    assert "boot" in troubles(world)


def test_versions_that_differ_are_named_once_and_pause_the_pool() -> None:
    world = World([model(min_replicas=1, max_replicas=1)])
    world.start()
    world.flow(boot=False)
    world.flow(boot=False)
    [node_id] = world.phases()
    told = "this machine has Ray 2.59.0, the head Ray 2.60.0"
    seen = ClusterObserved((NodeSeen(node_id, None, boot="failed", mismatch=told),), (), True)
    world.step(seen)
    for _ in range(50):
        world.now += 60.0
        world.step(*world.listings(), seen)
    assert len(world.actions(LaunchNode)) == 1
    assert troubles(world)["versions"]["text"] == told
    said = [r.text for plan in world.log for r in plan.reasons if "paused until a reload" in r.text]
    assert len(said) == 1


def test_an_unanswered_launch_is_repeated_with_the_same_id_and_bounded_pauses() -> None:
    world = World()
    world.start()
    asked = live(world, refusing("Unavailable", definite=False), 600.0)
    assert len({(a.node_id, a.offerings) for a in asked}) == 1
    assert 10 <= len(asked) <= 20


def test_a_machine_of_an_unanswered_call_may_still_come_after_a_refusal() -> None:
    world = World([model()], [pool(visibility_grace=60.0)])
    world.start()
    [launch] = [a for a in world.pending if isinstance(a, LaunchNode)]
    world.pending.clear()
    world.step(LaunchFailed(launch.node_id, "Unavailable", "lost", False))
    world.now += 5.0
    world.step(LaunchFailed(launch.node_id, "NoCapacity", "none", True))
    assert world.phases()[launch.node_id] == "terminating", "its first call may have made one"
    late = world._launch(launch)
    world.now += 5.0
    world.step(*world.listings())
    ends = [a for a in world.actions(TerminateNode) if isinstance(a, TerminateNode)]
    assert [a.node_id for a in ends] == [launch.node_id], f"{late} is ended"


def test_trouble_survives_nothing_but_a_reload_or_success() -> None:
    """The core of a new life begins without what only the old process had heard."""
    world = World()
    world.start()
    live(world, refusing("NoCapacity"), 5.0)
    core = Core(LEDGER, 2, list(world.rows.values()))
    core.step(world.now, [Configured(world.spec)])
    assert core.status(world.now)["pools"][0]["troubles"] == []
