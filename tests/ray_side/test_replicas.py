"""The replicas an agent looks after, against a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from elasticd.agent_api.messages import WAITING_FOR_ORDER, ReplicaReport
from elasticd.ray_side import replicas as module
from elasticd.ray_side.replicas import OrderRefused, Replicas
from tests.ray_side.fake_cluster import FakeCluster, order, report


class Desk:
    """Replicas with their tasks, and a way to wait for news."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.tasks: list[asyncio.Task[None]] = []
        self.news = asyncio.Event()
        self.replicas = Replicas(self.cluster, self._spawn, self.news.set)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def one(self, replica_id: str = "r-1") -> ReplicaReport:
        return next(r for r in self.replicas.reports() if r.replica_id == replica_id)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def until_phase(self, phase: str, replica_id: str = "r-1") -> ReplicaReport:
        await self.until(lambda: self.one(replica_id).phase == phase)
        return self.one(replica_id)


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(module, "POLL", 0.01)
    monkeypatch.setattr(module, "RETRY", 0.01)
    made = Desk()
    yield made
    for task in made.tasks:
        task.cancel()
    for result in await asyncio.gather(*made.tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result


async def test_an_order_makes_one_actor_and_its_state_is_reported(desk: Desk) -> None:
    desk.replicas.order(order())
    assert desk.one().phase == "starting"
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.actors["r-1#1"] = report(url="http://127.0.0.1:20000")
    assert (await desk.until_phase("ready")).url == "http://127.0.0.1:20000"


async def test_the_same_order_again_changes_nothing(desk: Desk) -> None:
    for _ in range(3):
        desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.replicas.order(order())
    assert desk.cluster.asked("create") == ["r-1#1"]


async def test_a_lower_incarnation_is_refused(desk: Desk) -> None:
    desk.replicas.order(order(incarnation=2))
    with pytest.raises(OrderRefused, match="incarnation 1 is over"):
        desk.replicas.order(order(incarnation=1))
    with pytest.raises(OrderRefused):
        desk.replicas.stop("r-1", 1, 0.0)


async def test_a_higher_incarnation_ends_the_lower_one_first(desk: Desk) -> None:
    desk.replicas.order(order(incarnation=1))
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.replicas.order(order(incarnation=2))
    await desk.until(lambda: "r-1#2" in desk.cluster.asked("start"))
    doing = [call for call in desk.cluster.calls if call[0] in ("create", "kill")]
    assert doing == [("create", "r-1#1"), ("kill", "r-1#1"), ("create", "r-1#2")]
    assert desk.one().incarnation == 2


async def test_a_dead_actor_is_reported_stopped_with_its_cause(desk: Desk) -> None:
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.dies("r-1#1", "the worker process died")
    assert (await desk.until_phase("stopped")).error == "the worker process died"


async def test_a_silent_actor_is_unknown_with_what_was_known_last(desk: Desk) -> None:
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.actors["r-1#1"] = report(url="http://x")
    await desk.until_phase("ready")
    desk.cluster.silent.add("r-1#1")
    assert (await desk.until_phase("unknown")).url == "http://x"
    desk.cluster.silent.clear()
    await desk.until_phase("ready")


async def test_a_stopped_engine_keeps_its_error_and_frees_its_gpus(desk: Desk) -> None:
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.actors["r-1#1"] = report(phase="stopped", error="out of memory")
    await desk.until(lambda: desk.cluster.asked("kill"))
    assert (await desk.until_phase("stopped")).error == "out of memory"


async def test_a_slow_start_does_not_hold_up_another(desk: Desk) -> None:
    desk.cluster.placeable.clear()
    desk.replicas.order(order("r-1"))
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.replicas.adopt(["r-2#1"])
    desk.cluster.actors["r-2#1"] = report("r-2")
    await desk.until_phase("ready", "r-2")
    assert desk.one("r-1").load_phase == "waiting for its GPUs"


async def test_an_actor_that_is_never_placed_is_given_up_and_killed(desk: Desk) -> None:
    desk.cluster.placeable.clear()
    desk.replicas.order(order(start_timeout=0.05))
    stopped = await desk.until_phase("stopped")
    assert "not placed within" in stopped.error
    assert "node n-1" in stopped.error
    assert desk.cluster.actors == {}


async def test_while_the_head_is_away_an_order_asks_on(desk: Desk) -> None:
    desk.cluster.head_away = "no head"
    desk.replicas.order(order())
    await desk.until(lambda: "no head" in desk.one().load_phase)
    desk.cluster.head_away = ""
    await desk.until(lambda: desk.cluster.asked("start"))


async def test_a_stop_reaches_the_actor_and_ends_without_an_error(desk: Desk) -> None:
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.actors["r-1#1"] = report()
    await desk.until_phase("ready")
    desk.replicas.stop("r-1", 1, 30.0)
    assert desk.one().phase == "stopping"
    await desk.until(lambda: desk.cluster.asked("stop"))
    desk.cluster.actors["r-1#1"] = report(phase="stopped")
    assert (await desk.until_phase("stopped")).error == ""


async def test_a_stop_of_a_replica_that_waits_for_gpus_ends_it_at_once(desk: Desk) -> None:
    desk.cluster.placeable.clear()
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.replicas.stop("r-1", 1, 600.0)
    assert (await desk.until_phase("stopped")).error == ""
    assert desk.cluster.actors == {}


async def test_an_actor_that_does_not_manage_to_stop_is_killed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_MARGIN", 0.05)
    desk.replicas.adopt(["r-1#1"])
    desk.cluster.actors["r-1#1"] = report()
    await desk.until_phase("ready")
    desk.cluster.silent.add("r-1#1")
    desk.replicas.stop("r-1", 1, 0.05)
    await desk.until_phase("stopped")
    assert desk.cluster.asked("kill") == ["r-1#1"]


async def test_a_stop_is_not_undone_by_the_same_order(desk: Desk) -> None:
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.replicas.stop("r-1", 1, 0.0)
    desk.cluster.actors["r-1#1"] = report(phase="stopped")
    await desk.until_phase("stopped")
    desk.replicas.order(order())
    assert desk.one().phase == "stopped"
    assert desk.cluster.asked("create") == ["r-1#1"]


async def test_a_stop_of_nobody_is_fine(desk: Desk) -> None:
    desk.replicas.stop("r-9", 1, 0.0)
    assert desk.replicas.reports() == ()


async def test_living_actors_of_an_earlier_agent_are_taken_in(desk: Desk) -> None:
    desk.cluster.actors["r-1#3"] = report(incarnation=3)
    desk.replicas.adopt(["r-1#3", "a stranger"])
    assert not desk.replicas.settled
    assert desk.one().phase == "unknown"
    ready = await desk.until_phase("ready")
    assert (ready.incarnation, ready.model) == (3, "m")
    assert desk.replicas.settled


async def test_a_found_actor_without_a_reply_is_listed_as_unknown(desk: Desk) -> None:
    desk.cluster.silent.add("r-1#1")
    desk.replicas.adopt(["r-1#1"])
    await desk.until(lambda: desk.replicas.settled)
    assert desk.one().phase == "unknown"


async def test_of_two_incarnations_only_the_newest_lives_on(desk: Desk) -> None:
    desk.cluster.actors = {f"r-1#{n}": report(incarnation=n) for n in (1, 2, 3)}
    desk.replicas.adopt(["r-1#2", "r-1#1", "r-1#3"])
    await desk.until_phase("ready")
    await desk.until(lambda: set(desk.cluster.actors) == {"r-1#3"} or desk.news.set())
    assert desk.one().incarnation == 3


async def test_stopped_replicas_are_forgotten_after_a_while(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.replicas.adopt(["r-1#1"])
    await desk.until_phase("stopped")
    monkeypatch.setattr(module, "KEEP_STOPPED", -1.0)
    assert desk.replicas.reports() == ()


async def test_ages_are_of_the_last_answer(desk: Desk) -> None:
    desk.cluster.actors["r-1#1"] = replace(report(), age=99.0)
    desk.replicas.adopt(["r-1#1"])
    assert (await desk.until_phase("ready")).age < 10.0


async def test_an_actor_whose_order_was_lost_with_its_agent_gets_it_again(desk: Desk) -> None:
    desk.cluster.actors["r-1#1"] = report(phase="starting", load_phase=WAITING_FOR_ORDER)
    desk.replicas.adopt(["r-1#1"])
    await desk.until_phase("starting")
    assert desk.one().unordered
    assert desk.cluster.asked("start") == []
    desk.replicas.order(order())
    assert not desk.one().unordered
    await desk.until(lambda: desk.cluster.asked("start") or desk.news.set())
    desk.replicas.order(order())
    desk.cluster.actors["r-1#1"] = report()
    await desk.until_phase("ready")
    assert desk.cluster.asked("start") == ["r-1#1"]
    assert desk.cluster.asked("create") == []


async def test_an_actor_found_running_its_engine_needs_no_order(desk: Desk) -> None:
    desk.cluster.actors["r-1#1"] = report()
    desk.replicas.adopt(["r-1#1"])
    await desk.until_phase("ready")
    assert not desk.one().unordered
    desk.replicas.order(order())
    desk.cluster.dies("r-1#1", "enough")
    await desk.until_phase("stopped")
    assert desk.cluster.asked("start") == []
