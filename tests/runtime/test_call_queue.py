"""Calls to a pool: bounded in rate and number, endings first, nobody starved, no place lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from elasticd.provider import RateLimited
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.call_queue import CallQueue, Turn
from elasticd.runtime.providers import PoolProvider
from tests.runtime.fakes import FakeProvider, hang
from tests.runtime.test_pools import REQUEST
from tests.runtime.virtual import LoopClock, settle, virtual


def now() -> float:
    return asyncio.get_running_loop().time()


class Line:
    """Callers that give their place back at once, in the order in which they were served."""

    def __init__(self, queue: CallQueue) -> None:
        self.queue = queue
        self.served: list[tuple[float, Any]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, turn: Turn, name: Any = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._call(turn, name if name is not None else turn))
        self.tasks.append(task)
        return task

    async def _call(self, turn: Turn, name: Any) -> None:
        await self.queue.take(turn)
        self.served.append((now(), name))
        self.queue.give_back(turn)

    async def all(self) -> list[Any]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return [name for _, name in self.served]


@virtual
async def test_endings_go_before_launches_and_launches_before_lists() -> None:
    line = Line(CallQueue(rate=1.0, burst=1, at_once=10))
    line.add(Turn.READING, "taken")
    await settle()
    for turn in (Turn.READING, Turn.RENTING, Turn.ENDING, Turn.ENDING):
        line.add(turn)
        await settle()
    assert await line.all() == ["taken", Turn.ENDING, Turn.ENDING, Turn.RENTING, Turn.READING]


@virtual
async def test_a_list_is_never_starved_by_machines_that_end_without_end() -> None:
    queue = CallQueue(rate=1.0, burst=1, at_once=10)
    line = Line(queue)
    for _ in range(100):
        line.add(Turn.ENDING)
    await settle()
    line.add(Turn.READING, "list")
    for _ in range(60):
        line.add(Turn.ENDING)
        await asyncio.sleep(1.0)
    await line.all()
    [waited] = [at for at, name in line.served if name == "list"]
    assert waited <= 125.0
    first_after = Line(CallQueue(rate=1.0, burst=1, at_once=10))
    first_after.add(Turn.READING, "list")
    for _ in range(5):
        first_after.add(Turn.ENDING)
    await asyncio.sleep(30.0)
    assert len(first_after.served) == 6


@virtual
async def test_who_gives_up_waiting_gives_the_place_back() -> None:
    line = Line(CallQueue(rate=0.1, burst=1, at_once=10))
    line.add(Turn.ENDING, "first")
    await settle()
    quitters = [line.add(Turn.ENDING, "quitter") for _ in range(50)]
    last = line.add(Turn.READING, "last")
    await asyncio.sleep(1.0)
    for quitter in quitters:
        quitter.cancel()
    await last
    assert line.served == [(0.0, "first"), (pytest.approx(10.0), "last")]
    assert line.queue.waiting == line.queue.under_way == 0


@virtual
async def test_who_is_served_and_cancelled_at_once_holds_no_place() -> None:
    queue = CallQueue(rate=0.1, burst=2, at_once=1)
    await queue.take(Turn.RENTING)
    taking = asyncio.create_task(queue.take(Turn.RENTING))
    await settle()
    queue.give_back(Turn.RENTING)  # its turn has come, and it does not know yet
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert queue.under_way == 0
    await queue.take(Turn.RENTING)
    assert now() == 0.0


@virtual
async def test_of_a_kind_only_so_many_are_under_way_and_the_other_kinds_go_on() -> None:
    provider = FakeProvider(launch=hang)
    limits = CallLimits(at_once=3, launch_timeout=60.0, rate=100.0, burst=100)
    pool = PoolProvider("lab", provider, LoopClock(), limits)
    launches = [asyncio.create_task(pool.launch(REQUEST)) for _ in range(8)]
    await settle()
    assert provider.count("launch") == 3
    assert pool.health()["waiting"] == 5
    await pool.terminate("i-1")
    await pool.instances()
    assert now() == 0.0
    await asyncio.sleep(61.0)
    assert provider.count("launch") == 6
    for launch in launches:
        launch.cancel()
    await asyncio.gather(*launches, return_exceptions=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.launch(REQUEST),
        lambda pool: pool.terminate("i-1"),
        lambda pool: pool.instances(),
        lambda pool: pool.offerings(),
    ],
)
@virtual
async def test_a_long_pause_that_the_provider_wants_holds_for_all_calls_and_no_longer(
    call: Callable[[PoolProvider], Awaitable[object]],
) -> None:
    provider = FakeProvider(terminate=[RateLimited("slow down", 90.0), None])
    pool = PoolProvider("lab", provider, LoopClock())
    with pytest.raises(RateLimited):
        await pool.terminate("i-1")
    await asyncio.sleep(30.0)
    asked = len(provider.asked)
    with pytest.raises(RateLimited, match="no calls for 60 s") as told:
        await call(pool)
    assert told.value.after == pytest.approx(60.0)
    assert len(provider.asked) == asked
    await asyncio.sleep(60.0)
    await call(pool)
    assert len(provider.asked) == asked + 1


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -5.0, "30", None])
@virtual
async def test_a_pause_that_is_no_number_is_none(after: Any) -> None:
    provider = FakeProvider(launch=RateLimited("slow down", after))
    pool = PoolProvider("lab", provider, LoopClock())
    with pytest.raises(RateLimited):
        await pool.launch(REQUEST)
    await pool.terminate("i-1")
    assert now() == 0.0


@virtual
async def test_a_pause_without_end_is_cut_to_the_longest_one() -> None:
    provider = FakeProvider(launch=RateLimited("go away", 1e9))
    pool = PoolProvider("lab", provider, LoopClock(), CallLimits(longest_pause=300.0))
    with pytest.raises(RateLimited):
        await pool.launch(REQUEST)
    await asyncio.sleep(300.0)
    await pool.terminate("i-1")
    assert now() == pytest.approx(300.0)
