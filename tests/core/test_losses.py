"""Replicas that served and are no more: what is told of them, until all is as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.events import ClusterObserved, EndpointBroken, ReplicaSeen
from elasticd.core.failures import ITS_MACHINE
from tests.core.world import World, model


def serving(**changes: Any) -> World:
    """Two replicas, each on a node of its own."""
    world = World([model(min_replicas=2, max_replicas=2, **changes)])
    world.start()
    world.settle(rounds=6)
    assert len(world.open_endpoints()) == 2
    return world


def told(world: World) -> dict[str, Any]:
    [shown] = world.core.status(world.now)["models"]
    return dict(shown)


def cause(world: World, replica_id: str) -> str:
    replicas = world.core.status(world.now)["replicas"]
    return str(next(r["cause"] for r in replicas if r["id"] == replica_id))


def ends(world: World, replica_id: str, error: str) -> None:
    """The agent sees that its engine has ended."""
    world.replicas[replica_id] = replace(
        world.replicas[replica_id], phase="stopped", url="", error=error
    )
    world.now += 1.0
    world.step(world.observed())


def test_a_replica_that_ended_is_told_until_its_model_has_all_of_them_again() -> None:
    world = serving()
    world.settle(seconds=60.0, rounds=4)
    replica_id = world.open_endpoints()[0]
    ends(world, replica_id, "exit 1")
    assert told(world)["lost"] == f"replica {replica_id} ended: exit 1"
    world.settle(rounds=4)
    assert len(world.open_endpoints()) == 2
    assert told(world)["lost"] == ""


def test_one_that_was_too_many_is_no_loss() -> None:
    world = World([model(max_replicas=2, target_ongoing_requests=4.0, downscale_delay=60.0)])
    world.start()
    for _ in range(90):
        world.settle(world.demand(in_flight=8))
    assert len(world.open_endpoints()) == 2
    for _ in range(300):
        world.settle(world.demand(in_flight=1))
    assert len(world.open_endpoints()) == 1
    assert told(world)["lost"] == ""


def test_a_machine_that_is_lost_was_the_reason_of_what_ended_on_it_just_before() -> None:
    world = serving()
    replica_id = world.open_endpoints()[0]
    node_id = world.replicas[replica_id].node_id
    ends(world, replica_id, "The actor died unexpectedly before finishing this task.")
    assert told(world)["failures"] == 1
    assert cause(world, replica_id).startswith("The actor died")
    world.joined.discard(node_id)
    world.now += 1.0
    plan = world.step(world.observed())
    assert cause(world, replica_id) == ITS_MACHINE
    assert any(ITS_MACHINE in reason.text for reason in plan.reasons)
    shown = told(world)
    assert (shown["failures"], shown["last_cause"], shown["last_tail"]) == (0, "", [])


def test_of_two_failures_only_that_of_the_lost_machine_is_taken_back() -> None:
    world = serving()
    first, second = world.open_endpoints()
    ends(world, first, "its own fault")
    ends(world, second, "its machine's fault")
    world.joined.discard(world.replicas[second].node_id)
    world.now += 1.0
    world.step(world.observed())
    shown = told(world)
    assert shown["failures"] == 1
    assert shown["last_cause"] == "", "what is told last is never that of the machine"
    assert cause(world, first) == "its own fault"


@pytest.mark.parametrize("answers", [True, False])
def test_an_endpoint_opens_again_only_where_the_engine_answered_since(answers: bool) -> None:
    world = serving()
    replica_id = world.open_endpoints()[0]
    world.step(EndpointBroken(replica_id, 1, "reset"))
    seen = replace(world.replicas[replica_id], answers=answers)
    others = tuple(r for r in world.replicas.values() if r.replica_id != replica_id)
    world.now += 30.0
    world.step(ClusterObserved(world.observed().nodes, (*others, seen), True))
    assert (replica_id in world.open_endpoints()) == answers


def test_an_engine_that_answers_nothing_gets_no_requests_until_it_does() -> None:
    """Also one that is idle, of which nobody else would notice."""
    world = serving(stall_timeout=300.0)
    replica_id = world.open_endpoints()[0]
    fine = world.replicas[replica_id]
    for seconds, is_open in ((6.0, True), (16.0, False)):
        world.replicas[replica_id] = replace(fine, answers=False, stalled_for=seconds)
        world.now += 10.0
        world.step(world.observed())
        assert (replica_id in world.open_endpoints()) == is_open
    [shown] = [r for r in world.core.status(world.now)["replicas"] if r["id"] == replica_id]
    assert shown["closed_for"] == 0.0
    world.replicas[replica_id] = fine
    world.now += 10.0
    world.step(world.observed())
    assert replica_id in world.open_endpoints()


def test_what_waits_for_a_model_that_failed_does_not_wait_for_a_node() -> None:
    world = World([model(start_attempts=1)])
    world.start()
    for _ in range(6):
        world.flow()
    [replica_id] = world.replicas
    ends(world, replica_id, "exit 1.")
    world.step()
    [waiting] = [r for r in world.core.status(world.now)["replicas"] if r["phase"] == "pending"]
    assert waiting["waits_for"] == "not started: its model counts as failed"


def test_a_report_tells_by_default_that_its_engine_answers() -> None:
    assert ReplicaSeen("r", 1, "n", "ready").answers, "as those of earlier journals do"
