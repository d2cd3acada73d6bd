"""A node that served goes: until when it takes requests, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.drain import CUT_MARGIN, LAST_WORDS
from elasticd.core.events import (
    DrainRequested,
    GatewayBegan,
    LoadSampled,
    NoticeArrived,
    NoticeTakenBack,
    ReplicaLoad,
    RequestsMoved,
)
from elasticd.core.records import Departure
from tests.core.world import World, model


def serving(count: int = 2) -> World:
    """So many replicas, each on a node of its own, and known start-up times of a second or two."""
    world = World([model(min_replicas=count, max_replicas=count)])
    world.start()
    world.settle(rounds=6)
    assert len(world.open_endpoints()) == count
    return world


def noticed(world: World, seconds: float) -> tuple[str, str]:
    """Node and replica of the first machine, which has a notice now."""
    instance_id, instance = next(iter(world.instances.items()))
    world.step(NoticeArrived("x", "spot", instance_id, "interruption", seconds))
    node_id = instance.node_id
    assert node_id is not None
    return node_id, next(r.replica_id for r in world.replicas.values() if r.node_id == node_id)


def tier(world: World, replica_id: str) -> str:
    """That of its endpoint; empty without one."""
    endpoints = world.table.models[0].endpoints
    return next((e.tier.value for e in endpoints if e.replica_id == replica_id), "")


def told(world: World) -> dict[str, Any]:
    [departure] = world.core.status(world.now)["departures"]
    return dict(departure)


def busy(replica_id: str) -> LoadSampled:
    return LoadSampled((ReplicaLoad(replica_id, 1),))


def test_with_time_for_a_replacement_a_node_serves_until_there_is_one() -> None:
    world = serving()
    _, replica_id = noticed(world, 120.0)
    assert tier(world, replica_id) == "open"
    world.flow(busy(replica_id), seconds=5.0)
    assert tier(world, replica_id) == "open", "the replacement does not serve yet"
    world.settle(busy(replica_id), rounds=4)
    assert tier(world, replica_id) == "closed"
    assert len(world.open_endpoints()) == 2


def test_one_that_serves_on_is_not_stopped_for_having_nothing_to_do() -> None:
    world = serving()
    _, replica_id = noticed(world, 120.0)
    for _ in range(20):
        world.flow(world.idle_loads(), boot=False)
    assert tier(world, replica_id) == "open"


def test_near_the_end_it_takes_nothing_new_replaced_or_not() -> None:
    world = serving()
    _, replica_id = noticed(world, 120.0)
    plan = world.flow(busy(replica_id), boot=False)
    assert plan.wake_at is not None
    assert plan.wake_at <= world.now + 120.0
    while world.now < 1000.0 + 6.0 + 120.0 - CUT_MARGIN - LAST_WORDS + 1.0:
        world.flow(busy(replica_id), boot=False)
    assert tier(world, replica_id) == "closed"


@pytest.mark.parametrize("forgotten", [False, True])
def test_without_time_for_a_replacement_or_unknown_it_closes_at_once(forgotten: bool) -> None:
    world = serving()
    if forgotten:
        world.core._state.usual.clear()
    _, replica_id = noticed(world, 120.0 if forgotten else 30.0)
    assert tier(world, replica_id) == "closed"


def test_the_table_says_when_a_replica_is_stopped() -> None:
    world = serving()
    assert {e.cut_at for e in world.table.models[0].endpoints} == {None}
    _, replica_id = noticed(world, 30.0)
    cuts = {e.replica_id: e.cut_at for e in world.table.models[0].endpoints}
    assert cuts.pop(replica_id) == world.now + 30.0 - CUT_MARGIN
    assert set(cuts.values()) == {None}


def test_a_drain_is_told_with_its_requests_and_its_times() -> None:
    world = serving()
    node_id, replica_id = noticed(world, 60.0)
    began = world.now
    world.settle(RequestsMoved(replica_id, 2, 5, 1, 0), rounds=4)
    world.settle(RequestsMoved(replica_id, 3, 7, 1, 0), seconds=2.0, rounds=8)
    out = told(world)
    assert (out["node_id"], out["notice"], out["models"]) == (node_id, 60.0, ["m"])
    counts = out["finished"], out["continued"], out["restarted"], out["lost"]
    assert counts == (3, 7, 1, 0)
    assert 0.0 < out["whole_after"] <= world.now - began
    assert 0.0 < out["ended_after"] <= 60.0
    assert not out["taken_back"]


def test_a_loss_without_notice_is_told_the_same_way() -> None:
    world = serving()
    node_id = next(iter(world.phases()))
    replica_id = next(r.replica_id for r in world.replicas.values() if r.node_id == node_id)
    world.kill_node(node_id)
    world.settle(RequestsMoved(replica_id, 0, 4, 0, 1), rounds=120)
    out = told(world)
    assert (out["node_id"], out["notice"]) == (node_id, None)
    assert (out["continued"], out["lost"]) == (4, 1)
    assert out["ended_after"] is not None
    assert out["whole_after"] is not None


def test_what_an_engine_met_there_before_is_not_counted_to_the_departure() -> None:
    world = serving()
    node_id = next(iter(world.phases()))
    dead = next(r.replica_id for r in world.replicas.values() if r.node_id == node_id)
    del world.replicas[dead]
    world.settle(RequestsMoved(dead, 0, 9, 2, 0), seconds=2.0, rounds=10)
    _, replica_id = noticed(world, 60.0)
    assert replica_id != dead
    world.step(RequestsMoved(replica_id, 1, 3, 0, 0))
    out = told(world)
    assert (out["finished"], out["continued"], out["restarted"]) == (1, 3, 0)


def test_a_drain_that_is_taken_back_is_told_as_such() -> None:
    world = serving()
    instance = next(iter(world.instances))
    noticed(world, 60.0)
    world.step(NoticeTakenBack("x", "spot", instance))
    assert told(world)["taken_back"]
    node_id = next(iter(world.phases()))
    world.now += 5.0
    world.step(DrainRequested(node_id, 60.0, "ann"))
    assert not told(world)["taken_back"], "a second drain is another departure"


def test_a_node_that_served_nothing_is_no_departure() -> None:
    world = World([model(min_replicas=0, max_replicas=1)])
    world.start()
    world.settle(world.demand(queued=1))
    world.flow(world.demand(queued=1))
    [node_id] = world.phases()
    world.step(DrainRequested(node_id, 60.0, "ann"))
    assert world.core.status(world.now)["departures"] == []


def test_a_gateway_that_counts_anew_takes_nothing_back() -> None:
    world = serving()
    _, replica_id = noticed(world, 60.0)
    world.step(RequestsMoved(replica_id, 3, 7, 1, 0))
    world.step(RequestsMoved(replica_id, 1, 0, 2, 0))
    out = told(world)
    assert (out["finished"], out["continued"], out["restarted"]) == (3, 7, 2)


def test_what_a_gateway_that_began_anew_had_under_way_is_said_not_to_be_counted() -> None:
    world = serving()
    noticed(world, 60.0)
    assert not told(world)["partial"]
    world.step(GatewayBegan())
    assert told(world)["partial"]
    world.settle(seconds=2.0, rounds=40)
    assert told(world)["ended_after"] is not None
    other = world.core._state.departures[told(world)["node_id"]]
    world.core._state.departures[other.node_id] = replace(other, partial=False)
    world.step(GatewayBegan())
    assert not told(world)["partial"], "all of it was told by then"


def test_of_two_ends_the_earlier_is_told() -> None:
    world = serving()
    node_id, _ = noticed(world, 60.0)
    world.now += 5.0
    world.step(DrainRequested(node_id, 10.0, "ann"))
    assert told(world)["notice"] == 15.0


def test_a_departure_outlives_the_controller_and_is_forgotten_with_its_node() -> None:
    world = serving()
    node_id, _ = noticed(world, 60.0)
    assert isinstance(world.core._state.departures[node_id], Departure)
    world.restart()
    world.start()
    world.settle(seconds=2.0, rounds=60)
    out = told(world)
    assert (out["node_id"], out["notice"]) == (node_id, 60.0)
    assert out["ended_after"] is not None
    world.settle(seconds=600.0, rounds=8)
    assert world.core.status(world.now)["departures"] == []
    assert not any(kind == "departure" for kind, _ in world.rows)


def test_what_is_lost_after_a_drain_was_taken_back_is_not_charged_to_it() -> None:
    world = serving()
    instance = next(iter(world.instances))
    node_id, replica_id = noticed(world, 60.0)
    world.step(RequestsMoved(replica_id, 1, 4, 0, 0))
    world.step(NoticeTakenBack("x", "spot", instance))
    world.settle(RequestsMoved(replica_id, 1, 6, 0, 3), rounds=4)
    out = told(world)
    assert (out["taken_back"], out["continued"], out["lost"]) == (True, 4, 0)
    world.restart()
    world.start()
    world.step(DrainRequested(node_id, 60.0, "ann"))
    world.step(RequestsMoved(replica_id, 2, 6, 0, 3))
    out = told(world)
    assert (out["finished"], out["continued"], out["lost"]) == (1, 2, 3), "those since"


def test_what_was_counted_outlives_the_controller_and_the_gateway() -> None:
    world = serving()
    _, replica_id = noticed(world, 60.0)
    world.step(RequestsMoved(replica_id, 2, 5, 1, 1))
    world.restart()
    world.start()
    world.step(GatewayBegan(), RequestsMoved(replica_id, 1, 0, 0, 0))
    out = told(world)
    counts = out["finished"], out["continued"], out["restarted"], out["lost"]
    assert counts == (2, 5, 1, 1)
