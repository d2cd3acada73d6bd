"""The fleet's life, promise by promise, in a world where everything can be made to happen."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from elasticd.core.actions import LaunchNode, StartReplica, StopReplica, TerminateNode
from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    Configured,
    DownRequested,
    DrillRequested,
    EndpointBroken,
    InstancesListed,
    LaunchFailed,
    ListFailed,
    LoadSampled,
    NodeSeen,
    NoticeArrived,
    NoticeTakenBack,
    ReloadRefused,
    ReplicaLoad,
    ReplicaOrderTaken,
    ReplicaSeen,
    ServeRequested,
    TerminateFailed,
)
from elasticd.core.specs import FleetSpec
from elasticd.provider import Instance, InstanceState
from tests.core.world import LEDGER, World, model, offering, pool


def serving(**changes: object) -> World:
    world = World([model(**changes)])
    world.start()
    world.settle(rounds=4)
    return world


def test_one_command_rents_a_node_and_serves() -> None:
    world = serving()
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1
    assert len(world.actions(StartReplica)) == 1


def test_nothing_is_bought_before_the_first_instance_list() -> None:
    world = World()
    from elasticd.core.events import Configured, OfferingsListed

    plan = world.step(Configured(world.spec), OfferingsListed("spot", world.offerings))
    assert not world.actions(LaunchNode)
    assert "not listed yet" in world.core.status(world.now)["models"][0]["blocked"]
    plan = world.step(InstancesListed("spot", ()))
    assert any(isinstance(a, LaunchNode) for a in plan.actions)


def test_a_queue_that_lasts_brings_a_second_node_and_only_one() -> None:
    world = serving(max_replicas=2, target_ongoing_requests=4.0, upscale_delay=10.0)
    for _ in range(30):
        world.settle(world.demand(queued=6, in_flight=2))
    assert len(world.open_endpoints()) == 2
    assert len(world.actions(LaunchNode)) == 2


def test_slow_machines_are_not_bought_again_while_they_boot() -> None:
    world = World([model(min_replicas=4, max_replicas=4)])
    world.start()
    todo, world.pending = world.pending, []
    answers = [world.carry_out(a) for a in todo]
    for _ in range(30):
        world.now += 10
        world.step(*[a for a in answers if a], *world.listings(), world.observed())
        answers = []
    assert len(world.actions(LaunchNode)) == 4


def test_a_killed_node_is_replaced_once_two_lists_agree() -> None:
    world = serving()
    [dead] = world.phases()
    world.kill_node(dead)
    world.now += 2
    world.step(*world.listings())
    assert world.phases()[dead] == "ready", "one list is not enough"
    world.now += 2
    world.step(world.observed(), *world.listings())
    assert dead not in world.phases()
    world.settle(rounds=4)
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 2


def test_a_node_that_ray_calls_dead_takes_no_replica_and_another_is_rented() -> None:
    world = serving()
    [dead] = world.phases()
    world.joined.discard(dead)
    world.kill_replicas(dead)
    world.now += 20
    world.step(world.observed())
    world.now += 4
    world.step(world.observed())
    for _ in range(4):
        world.now += 1
        todo, world.pending = world.pending, []
        world.step(*[a for a in map(world.carry_out, todo) if a is not None])
    starts = [a for a in world.actions(StartReplica) if isinstance(a, StartReplica)]
    assert [a.node_id for a in starts] == [dead], "only the first life was on it"
    assert len(world.actions(LaunchNode)) == 2


def test_a_failed_list_is_not_an_empty_list() -> None:
    world = serving()
    for _ in range(20):
        world.now += 5
        world.step(ListFailed("spot", "instances", "Unavailable", "503"))
    assert list(world.phases().values()) == ["ready"]
    assert len(world.open_endpoints()) == 1


def test_many_nodes_vanishing_at_once_is_probably_our_error() -> None:
    world = World([model(min_replicas=4, max_replicas=4)])
    world.start()
    world.settle(rounds=4)
    empty = InstancesListed("spot", ())
    for _ in range(10):
        world.now += 2
        world.step(empty)
    assert list(world.phases().values()) == ["ready"] * 4
    world.now += 60
    world.step(empty)
    assert list(world.phases().values()) == ["ready"] * 4, "no agent, and the gateway says nothing"
    world.step(*(EndpointBroken(r, 1, "reset") for r in world.open_endpoints()), empty)
    assert "ready" not in world.phases().values()


def test_an_agent_that_is_away_changes_nothing() -> None:
    world = serving()
    for _ in range(20):
        world.now += 10
        world.step(ClusterUnreachable("refused"), *world.listings())
        world.step(ClusterObserved((), (), complete=False))
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1


def test_a_broken_connection_closes_the_endpoint_and_health_opens_it_again() -> None:
    world = serving()
    [replica] = world.open_endpoints()
    world.step(EndpointBroken(replica, 1, "reset"))
    assert world.open_endpoints() == []
    world.step(world.observed())
    assert world.open_endpoints() == [], "a report from before the break proves nothing"
    world.now += 2
    world.step(world.observed())
    assert world.open_endpoints() == [replica]
    assert list(world.phases().values()) == ["ready"]


def test_a_dead_engine_is_respawned_on_the_same_node_under_a_new_id() -> None:
    world = serving()
    [old] = world.open_endpoints()
    seen = world.replicas.pop(old)
    world.step(
        ClusterObserved(
            world.observed().nodes,
            (ReplicaSeen(old, 1, seen.node_id, "stopped", error="-9"),),
            True,
        )
    )
    world.settle(rounds=3)
    [new] = world.open_endpoints()
    assert new != old
    assert len(world.actions(LaunchNode)) == 1


def test_a_replica_missing_from_a_complete_report_is_respawned() -> None:
    world = serving()
    [old] = world.open_endpoints()
    world.replicas.clear()
    world.now += 20
    world.step(world.observed())
    assert world.open_endpoints() == [old], "one report is not enough"
    world.now += 4
    world.step(world.observed())
    assert world.open_endpoints() == []
    world.settle(rounds=3)
    assert world.open_endpoints()
    assert world.open_endpoints() != [old]


def test_a_replica_that_should_not_be_there_is_taken_down() -> None:
    world = serving()
    old = "r-ledger01-0-1"
    world.replicas[old] = ReplicaSeen(old, 1, "n", "ready", "http://h/old")
    plan = world.step(world.observed())
    assert StopReplica(old, 1, 0.0) in plan.actions


def test_what_another_ledger_left_running_on_its_machine_is_not_taken_down() -> None:
    world = serving()
    [mine] = world.phases()
    theirs, odd = "r-foreign0-1-1", "r-foreign0-1-2"
    world.replicas[theirs] = ReplicaSeen(theirs, 1, "n-foreign0-1-1", "ready", "http://h/x")
    world.replicas[odd] = ReplicaSeen(odd, 1, mine, "ready", "http://h/y")
    plan = world.step(world.observed())
    stopped = [a.replica_id for a in plan.actions if isinstance(a, StopReplica)]
    assert stopped == [odd], "only what is on a machine of ours"


def test_the_loss_of_a_machine_is_no_failed_start_of_what_ran_on_it() -> None:
    world = serving()
    [node_id] = world.phases()
    for rid, seen in list(world.replicas.items()):
        world.replicas[rid] = replace(seen, phase="stopped", error="the actor died")
    world.step(world.observed())
    assert world.core.status(world.now)["models"][0]["failures"] == 1
    world.kill_node(node_id)
    for _ in range(3):
        world.now += 2.0
        world.step(*world.listings(), world.observed())
    told = world.core.status(world.now)["models"][0]
    assert (told["failures"], told["blocked"]) == (0, "")
    assert len(world.actions(LaunchNode)) == 2, "and its successor waits for nothing"


def test_nothing_is_rented_before_the_agent_has_answered_or_while_it_is_away_for_long() -> None:
    world = World()
    world.step(Configured(world.spec), ClusterUnreachable("refused"))
    world.step(*world.listings())
    assert world.actions(LaunchNode) == []
    assert "no machine could join" in world.core.status(world.now)["models"][0]["blocked"]
    world.step(world.observed())
    assert len(world.actions(LaunchNode)) == 1
    world.settle(rounds=3)
    world.step(ClusterUnreachable("refused"))
    world.now += 61.0
    world.spec = FleetSpec("c", (model(min_replicas=3, max_replicas=3),), (pool(),))
    world.step(Configured(world.spec))
    assert len(world.actions(LaunchNode)) == 1
    world.step(world.observed())
    assert len(world.actions(LaunchNode)) == 3
    assert "r-old-1-1" not in world.open_endpoints()


def test_an_engine_that_keeps_failing_is_started_with_growing_pauses() -> None:
    world = serving(min_replicas=1)
    starts = []
    for _ in range(300):
        world.now += 1
        starts += [world.now for a in world.pending if isinstance(a, StartReplica)]
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.step(*answers)
        for rid, seen in list(world.replicas.items()):
            del world.replicas[rid]
            dead = ReplicaSeen(rid, 1, seen.node_id, "stopped", error="no such model")
            world.step(ClusterObserved(world.observed().nodes, (dead,), True))
    pauses = [b - a for a, b in pairwise(starts)]
    assert pauses == sorted(pauses)
    assert len(starts) < 12
    assert world.core.status(world.now)["models"][0]["last_cause"] == "no such model"


def test_a_stalled_engine_is_replaced() -> None:
    world = serving(stall_timeout=30.0)
    [old] = world.open_endpoints()
    node = world.replicas[old].node_id
    stuck = ReplicaSeen(old, 1, node, "ready", f"http://h/{old}", stalled_for=31.0)
    world.step(ClusterObserved(world.observed().nodes, (stuck,), True))
    assert world.open_endpoints() == []
    world.settle(rounds=4)
    assert world.open_endpoints()
    assert world.open_endpoints() != [old]


def test_an_engine_that_stands_still_is_not_opened_again_whatever_its_health_says() -> None:
    world = serving(stall_timeout=300.0)
    [replica] = world.open_endpoints()
    node = world.replicas[replica].node_id
    world.step(EndpointBroken(replica, 1, "all its streams are silent"))

    def seen(stalled_for: float | None) -> None:
        world.now += 2.0
        told = ReplicaSeen(
            replica, 1, node, "ready", f"http://h/{replica}", stalled_for=stalled_for
        )
        world.step(ClusterObserved(world.observed().nodes, (told,), True))

    for stalled_for in (10.0, 60.0):
        seen(stalled_for)
        assert world.open_endpoints() == []
    seen(None)
    assert world.open_endpoints() == [replica], "it has nothing to do any more, or goes on"


def test_idle_capacity_goes_back_after_its_delays() -> None:
    world = serving(
        max_replicas=2, target_ongoing_requests=4.0, upscale_delay=5.0, downscale_delay=60.0
    )
    for _ in range(20):
        world.settle(world.demand(in_flight=8))
    assert len(world.open_endpoints()) == 2
    for _ in range(50):
        world.settle(world.demand(in_flight=1))
    assert len(world.open_endpoints()) == 2, "kept for the whole downscale_delay"
    for _ in range(200):
        world.settle(world.demand(in_flight=1))
    assert len(world.open_endpoints()) == 1
    assert len(world.instances) == 1
    assert len(world.actions(LaunchNode)) == 2


def test_scale_to_zero_waits_from_the_last_request_and_one_request_wakes_it() -> None:
    world = serving(min_replicas=0, scale_to_zero_after=100.0, downscale_delay=10.0)
    assert world.open_endpoints() == []
    world.settle(world.demand(queued=1))
    world.settle(world.demand(in_flight=1), rounds=4)
    assert len(world.open_endpoints()) == 1
    for _ in range(90):
        world.settle(world.demand())
    assert len(world.open_endpoints()) == 1
    for _ in range(30):
        world.settle(world.demand())
    assert world.open_endpoints() == []
    for _ in range(130):
        world.settle(world.demand())
    assert world.instances == {}


def test_missing_demand_never_scales_down() -> None:
    world = serving(
        max_replicas=2, target_ongoing_requests=4.0, upscale_delay=5.0, downscale_delay=20.0
    )
    for _ in range(20):
        world.settle(world.demand(in_flight=8))
    world.settle(rounds=300)
    assert len(world.open_endpoints()) == 2


def test_a_notice_starts_the_replacement_at_once_and_a_repeat_changes_nothing() -> None:
    world = serving()
    [node] = world.phases()
    instance = next(iter(world.instances))
    notice = NoticeArrived("x", "spot", instance, "interruption", 120.0)
    plan = world.step(notice)
    assert any(isinstance(a, LaunchNode) for a in plan.actions)
    assert world.phases()[node] == "draining"
    assert world.step(notice).actions == ()


def test_a_withdrawn_notice_puts_the_node_and_its_replica_back() -> None:
    world = serving()
    [replica] = world.open_endpoints()
    instance = next(iter(world.instances))
    world.step(NoticeArrived("x", "spot", instance, "interruption", 20.0))
    assert world.open_endpoints() == []
    world.step(NoticeTakenBack("x", "spot", instance))
    assert world.open_endpoints() == [replica]


def test_the_last_replica_of_a_model_is_a_last_resort_while_it_drains() -> None:
    world = serving()
    instance = next(iter(world.instances))
    world.step(NoticeArrived("x", "spot", instance, "interruption", 20.0))
    [route] = world.table.models
    assert [e.tier.value for e in route.endpoints] == ["last_resort"]


def test_sold_out_chooses_the_next_cheapest_and_does_not_hammer() -> None:
    world = World(
        offerings=[offering(zone="a", price=0.3, gpus=1), offering(zone="b", price=0.4, gpus=1)]
    )
    world.start()
    [first] = world.pending
    assert isinstance(first, LaunchNode)
    assert [o.zone for o in first.offerings] == ["a", "b"]
    world.pending.clear()
    world.step(LaunchFailed(first.node_id, "NoCapacity", "sold out", True))
    assert world.pending == [], "both were asked for and refused"
    for _ in range(600):
        world.now += 1
        world.step()
        for action in world.pending:
            assert isinstance(action, LaunchNode)
            world.step(LaunchFailed(action.node_id, "NoCapacity", "sold out", True))
        world.pending.clear()
    assert 3 <= len(world.actions(LaunchNode)) <= 12


def test_refused_credentials_stop_buying_in_that_pool_only() -> None:
    world = World(
        [model(pools=("spot", "other"))],
        [pool("spot"), pool("other")],
        [offering("spot", price=0.1), offering("other", price=0.9)],
    )
    world.start()
    [first] = world.pending
    assert isinstance(first, LaunchNode)
    assert first.pool == "spot"
    world.pending.clear()
    world.step(LaunchFailed(first.node_id, "AuthFailed", "bad key", True))
    [second] = world.pending
    assert isinstance(second, LaunchNode)
    assert second.pool == "other"


def test_an_unanswered_launch_is_repeated_unchanged_under_the_same_id() -> None:
    world = World()
    world.start()
    [first] = world.pending
    assert isinstance(first, LaunchNode)
    world.step(LaunchFailed(first.node_id, "Unavailable", "timeout", False))
    world.now += 60
    world.step()
    assert world.actions(LaunchNode) == [first, first]


def test_a_launch_whose_answer_was_lost_is_found_in_the_list() -> None:
    world = World()
    world.start()
    [first] = world.pending
    assert world.carry_out(first) is not None
    world.pending.clear()
    world.step(*world.listings())
    assert list(world.phases().values()) == ["booting"]
    world.settle(rounds=4)
    assert len(world.open_endpoints()) == 1
    assert len(world.instances) == 1


def test_an_orphan_is_ended_after_its_guard_age() -> None:
    world = serving()
    orphan = Instance("i-lost", "n-x", LEDGER, InstanceState.RUNNING, offering())
    world.instances["i-lost"] = orphan
    world.settle(rounds=10)
    assert "i-lost" in world.instances, "it may be a launch in flight"
    world.settle(rounds=30)
    assert "i-lost" not in world.instances
    assert len(world.open_endpoints()) == 1


def test_machines_of_another_ledger_are_never_touched_and_stop_buying() -> None:
    world = World()
    world.instances["i-foreign"] = Instance(
        "i-foreign", "n-y", "another", InstanceState.RUNNING, offering()
    )
    world.start()
    world.settle(rounds=100)
    assert "i-foreign" in world.instances
    assert not world.actions(TerminateNode)
    assert not world.actions(LaunchNode)
    assert "another ledger" in world.core.status(world.now)["models"][0]["blocked"]


def test_max_nodes_counts_machines_that_are_ending() -> None:
    world = World([model(min_replicas=2, max_replicas=2)], [pool(max_nodes=2)])
    world.start()
    world.settle(rounds=4)
    node = next(iter(world.phases()))
    instance = next(iter(world.instances))
    world.step(NoticeArrived("x", "spot", instance, "interruption", 5.0))
    for _ in range(10):
        world.now += 1
        world.step()
    assert world.phases()[node] == "terminating"
    assert len(world.actions(LaunchNode)) == 2


def test_gpus_that_come_late_are_waited_for_and_never_coming_fails_the_node() -> None:
    world = World([model()], [pool(boot_timeout=300.0)])
    world.start()
    [first] = world.pending
    assert isinstance(first, LaunchNode)
    answer = world.carry_out(first)
    world.pending.clear()
    assert answer is not None
    no_gpu = ClusterObserved((NodeSeen(first.node_id, True, 0),), (), True)
    world.step(answer, no_gpu)
    for _ in range(20):
        world.now += 10
        world.step(no_gpu, *world.listings())
    assert world.phases()[first.node_id] == "booting"
    assert len(world.actions(LaunchNode)) == 1
    world.now += 120
    world.step(no_gpu)
    assert world.phases()[first.node_id] == "terminating"


def test_a_restart_adopts_what_lives_and_buys_nothing() -> None:
    world = World([model(min_replicas=2, max_replicas=2)])
    world.start()
    world.settle(rounds=4)
    before = sorted(world.open_endpoints())
    world.restart()
    assert sorted(world.open_endpoints()) == before, "routes stay open before anything is known"
    world.settle(rounds=20)
    assert sorted(world.open_endpoints()) == before
    assert len(world.actions(LaunchNode)) == 2


def test_ids_are_never_minted_twice_over_restarts() -> None:
    world = serving()
    first = set(world.phases())
    for _ in range(3):
        world.restart()
        world.kill_node(next(iter(world.phases())))
        world.settle(seconds=3.0, rounds=8)
    assert len(world.open_endpoints()) == 1
    assert len(world.launched) == 4
    assert first < set(world.launched)


def test_a_model_taken_out_of_the_configuration_is_drained_and_its_nodes_go_back() -> None:
    from elasticd.core.events import Configured

    world = serving()
    world.spec = FleetSpec("c", (), world.spec.pools)
    world.step(Configured(world.spec))
    world.settle(rounds=200)
    assert world.instances == {}
    assert world.replicas == {}


def test_a_changed_spec_is_served_by_new_replicas_before_the_old_ones_go() -> None:
    from elasticd.core.events import Configured

    world = serving()
    [old] = world.open_endpoints()
    world.spec = FleetSpec("c", (model(spec_hash="newer"),), world.spec.pools)
    world.step(Configured(world.spec))
    for _ in range(20):
        assert world.open_endpoints(), "never without a replica"
        world.settle()
    assert world.open_endpoints() != [old]
    assert len(world.open_endpoints()) == 1


def test_more_demand_adds_replicas_and_takes_none_away() -> None:
    world = World(
        [model(max_replicas=4, target_ongoing_requests=1.0, upscale_delay=0.0)],
        [pool(max_nodes=1)],
    )
    world.start()
    world.step(world.demand(queued=3))
    before = {r["id"] for r in world.core.status(world.now)["replicas"]}
    world.now += 1
    world.step(world.demand(queued=4))
    after = {r["id"] for r in world.core.status(world.now)["replicas"] if r["phase"] != "stopped"}
    assert len(after) == 4
    assert before < after


def test_down_gives_everything_back_and_buys_nothing_more() -> None:
    world = World([model(min_replicas=3, max_replicas=3)])
    world.start()
    world.settle(rounds=4)
    world.step(DownRequested("a person"))
    assert world.open_endpoints() == []
    world.settle(rounds=40)
    assert world.instances == {}
    assert world.phases() == {}
    assert len(world.actions(LaunchNode)) == 3


def test_while_everything_is_given_back_requests_are_told_so_at_once() -> None:
    world = serving()
    world.step(DownRequested("a person"))
    [route] = world.table.models
    assert route.max_wait == 0.0
    assert route.state == "everything is being given back (a person)"
    world.step(ServeRequested("a person"))
    assert world.table.models[0].max_wait > 0.0


def test_giving_back_outlives_restarts_until_somebody_asks_to_serve() -> None:
    world = serving()
    world.step(DownRequested("a person"))
    world.restart()
    world.settle(rounds=40)
    assert world.instances == {}
    world.restart()
    world.settle(rounds=10)
    assert len(world.actions(LaunchNode)) == 1, "a crash is no wish to serve"
    world.step(ServeRequested("a person"))
    world.settle(rounds=5)
    assert len(world.open_endpoints()) == 1
    world.restart()
    world.settle(rounds=5)
    assert len(world.open_endpoints()) == 1


def test_a_start_that_takes_too_long_is_tried_again_on_the_same_node_after_a_pause() -> None:
    world = World([model(start_timeout=60.0)], [pool(idle_timeout=900.0)])
    world.start()
    for _ in range(600):
        world.now += 1
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        world.step(*answers, *world.listings(), world.observed())
    assert len(world.actions(LaunchNode)) == 1
    assert 3 <= len(world.actions(StartReplica)) <= 9
    told = world.core.status(world.now)["models"][0]
    assert told["failures"] >= 3
    assert "start took longer than 60 s" in told["last_cause"]


def test_a_machine_that_cannot_be_ended_says_why() -> None:
    world = serving()
    [node] = world.phases()
    world.step(DownRequested("a person"))
    world.settle(seconds=30.0)
    world.step(TerminateFailed(node, "i-0", "Rejected", "no such pool"))
    [shown] = [n for n in world.core.status(world.now)["nodes"] if n["id"] == node]
    assert shown["phase"] == "terminating"
    assert "no such pool" in shown["reason"]


def test_every_decision_tells_its_reasons() -> None:
    world = serving(max_replicas=3, target_ongoing_requests=1.0, upscale_delay=0.0)
    plan = world.step(world.demand(queued=9))
    texts = [r.text for r in plan.reasons if r.subject == "model:m"]
    assert texts == ["1 → 3 replicas: 9 queued + 0 in flight: demand wants 9 → max_replicas 3"]


def test_what_was_unanswered_at_a_restart_is_asked_again_at_once() -> None:
    world = World()
    world.start()
    assert len(world.actions(LaunchNode)) == 1
    world.restart()
    world.step(*world.listings())
    assert len(world.actions(LaunchNode)) == 2
    first, second = world.actions(LaunchNode)
    assert first == second, "the same machine, not another one"
    world.settle(rounds=6)
    world.step(DownRequested("test"))
    while not world.actions(TerminateNode):
        world.settle()
    world.restart()
    assert len(world.actions(TerminateNode)) == 2


def test_a_restart_of_the_controller_keeps_the_number_of_replicas_until_demand_is_known() -> None:
    world = World([model(max_replicas=4, target_ongoing_requests=2.0, upscale_delay=2.0)])
    world.start()
    world.settle(world.demand(in_flight=6), rounds=12)
    assert len(world.open_endpoints()) == 3
    world.restart()
    for _ in range(30):
        world.settle()
        assert len(world.open_endpoints()) == 3
    assert world.core.status(world.now)["models"][0]["wanted"] == 3


def test_a_restart_while_a_model_wakes_from_zero_starts_it_only_once() -> None:
    world = World([model(min_replicas=0)])
    world.start()
    world.step(world.demand(queued=1))
    for _ in range(3):
        world.flow()
    assert len(world.replicas) == 1
    world.restart()
    for _ in range(5):
        world.flow()
    world.settle(rounds=3)
    assert len(world.open_endpoints()) == 1
    assert len({a.replica_id for a in world.actions(StartReplica)}) == 1  # type: ignore[union-attr]


def test_a_machine_missing_from_lists_for_a_moment_is_believed_to_ray() -> None:
    world = serving()
    (gone,) = list(world.instances.values())
    world.instances.clear()
    for _ in range(4):
        world.now += 1.0
        seen = ClusterObserved(
            (NodeSeen(gone.node_id or "", True, 1),), tuple(world.replicas.values()), True
        )
        world.step(*world.listings(), seen)
        assert len(world.open_endpoints()) == 1
    world.instances[gone.instance_id] = gone
    world.settle(rounds=5)
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1


def test_a_machine_that_stays_out_of_the_lists_is_gone_although_ray_believes_in_it() -> None:
    world = serving()
    (gone,) = list(world.instances.values())
    world.instances.clear()
    silent = tuple(replace(r, phase="unknown") for r in world.replicas.values())
    for _ in range(35):
        world.now += 1.0
        seen = ClusterObserved((NodeSeen(gone.node_id or "", True, 1),), silent, True)
        world.step(*world.listings(), seen)
    assert gone.node_id not in world.phases()


def test_what_serves_is_never_given_up_on_the_word_of_a_list_alone() -> None:
    world = serving()
    (hidden,) = list(world.instances.values())
    world.instances.clear()
    for _ in range(600):
        world.now += 1.0
        seen = ClusterObserved(
            (NodeSeen(hidden.node_id or "", True, 1),), tuple(world.replicas.values()), True
        )
        world.step(*world.listings(), seen)
    assert len(world.open_endpoints()) == 1
    assert len(world.actions(LaunchNode)) == 1, "and nothing is bought in its place"


def test_what_serves_is_not_given_up_where_reports_of_it_come_slowly() -> None:
    world = serving()
    (hidden,) = list(world.instances.values())
    world.instances.clear()
    for second in range(120):
        world.now += 1.0
        node = NodeSeen(hidden.node_id or "", True, 1)
        seen = ClusterObserved((node,), tuple(world.replicas.values()), True)
        world.step(*world.listings(), *([seen] if second % 20 == 0 else []))
    assert len(world.open_endpoints()) == 1


def test_a_connection_that_breaks_does_not_make_a_wrong_list_right() -> None:
    world = serving()
    (hidden,) = list(world.instances.values())
    (replica,) = world.replicas
    world.instances.clear()
    node = NodeSeen(hidden.node_id or "", True, 1)
    seen = ClusterObserved((node,), tuple(world.replicas.values()), True)
    for second in range(120):
        world.now += 1.0
        broken = [EndpointBroken(replica, 1, "reset")] if second == 60 else []
        world.step(*world.listings(), *broken, *([seen] if second % 5 == 0 else []))
    assert len(world.open_endpoints()) == 1


def test_an_engine_that_a_late_start_brings_back_after_its_stop_is_stopped_again() -> None:
    world = serving()
    (back,) = world.replicas.values()
    (node_id,) = world.phases()
    world.spec = replace(world.spec, models=())
    world.step(Configured(world.spec))
    world.settle(rounds=1)
    world.step(ReplicaOrderTaken(back.replica_id, back.incarnation, "stop"))
    stops = len(world.actions(StopReplica))
    node = NodeSeen(node_id, True, 1)
    for _ in range(70):
        world.now += 1.0
        world.step(ClusterObserved((node,), (back,), True), *world.listings())
    assert len(world.actions(StopReplica)) > stops


def test_near_the_end_of_a_drain_requests_wait_for_another_replica() -> None:
    world = serving()
    instance = next(iter(world.instances))
    plan = world.step(NoticeArrived("x", "spot", instance, "interruption", 20.0))
    assert plan.wake_at is not None
    [endpoint] = world.table.models[0].endpoints
    assert endpoint.tier.value == "last_resort"
    world.now += 10.0
    world.step(LoadSampled((ReplicaLoad(endpoint.replica_id, 1),)))
    [endpoint] = world.table.models[0].endpoints
    assert endpoint.tier.value == "closed"
    assert world.phases(), "it still finishes what it runs"


def test_what_the_provider_refuses_is_told_in_its_words_and_a_reload_asks_again_at_once() -> None:
    world = World()
    world.start()
    [launch] = world.pending
    assert isinstance(launch, LaunchNode)
    world.pending.clear()
    world.step(LaunchFailed(launch.node_id, "QuotaExceeded", "0 of 0 vCPUs", True))
    told = world.core.status(world.now)
    assert told["models"][0]["blocked"] == "spot: QuotaExceeded: 0 of 0 vCPUs"
    assert told["pools"][0]["aside"][0]["seconds_left"] == 300.0
    world.step(Configured(world.spec, retry_failed=True))
    assert len(world.actions(LaunchNode)) == 2


@pytest.mark.parametrize(("notice", "when"), [(None, "at once"), (30.0, "30 s after a notice")])
def test_who_asked_for_a_drill_is_on_record_and_nothing_is_decided_for_it(
    notice: float | None, when: str
) -> None:
    world = serving()
    plan = world.step(DrillRequested("node-1", notice, "ann"))
    assert [(r.subject, r.text) for r in plan.reasons] == [
        ("node:node-1", f"a drill takes its machine {when} (by ann)")
    ]
    assert plan.actions == ()


def test_a_refused_reload_and_what_an_accepted_one_changed_are_on_record() -> None:
    world = serving()
    plan = world.step(ReloadRefused("e.yaml:3: models[0]: no", "SIGHUP"))
    assert [r.text for r in plan.reasons] == ["reload refused (SIGHUP): e.yaml:3: models[0]: no"]
    plan = world.step(Configured(world.spec, changed=("models[m].scaling.max_replicas",)))
    assert [r.text for r in plan.reasons] == ["reloaded: models[m].scaling.max_replicas"]
