"""A reload holds as a whole or not at all, and says which."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elasticd.core.events import ReloadRefused
from elasticd.errors import UsageError
from elasticd.runtime.pools import PoolRefused
from elasticd.runtime.reload import Reloader
from tests.runtime.fakes import fleet_spec
from tests.runtime.virtual import LoopClock
from tests.runtime.world import Plain, World, wishes


class Desk:
    """A reloader with everything around it replaced."""

    def __init__(self, *readings: Any, machines: Mapping[str, int] | None = None) -> None:
        self.first = replace(wishes(World()), next=list(readings), warnings=("old warning",))
        self.applied: list[Any] = []
        self.told: list[tuple[str, ...]] = []
        self.emitted: list[Any] = []
        self.apply_error: Exception | None = None
        self.machines = machines or {}
        self.reloader = self.reloader_of(self.first)

    def reloader_of(self, first: Any, **more: Any) -> Reloader:
        tell = self.emitted.append
        return Reloader(first, self.apply, lambda: self.machines, LoopClock(), tell, **more)

    async def reload(self) -> Any:
        return await self.reloader.reload("ann")

    def apply(self, newer: Any, changed: tuple[str, ...]) -> None:
        if self.apply_error is not None:
            raise self.apply_error
        self.applied.append(newer)
        self.told.append(changed)


def changed(**more: Any) -> Plain:
    plain = wishes(World())
    return replace(plain, spec=fleet_spec(min_replicas=2, max_replicas=3), **more)


def without_lab() -> Plain:
    plain = wishes(World())
    return replace(plain, spec=replace(plain.spec, pools=()), pools={})


async def test_before_the_first_reload_there_is_nothing_to_tell_but_warnings() -> None:
    assert Desk().reloader.summary() == {
        "number": 0,
        "at_age": None,
        "running_for": None,
        "problem": "",
        "changed": [],
        "needs_restart": [],
        "warnings": ["old warning"],
    }


async def test_a_valid_file_holds_from_then_on() -> None:
    newer = changed(warnings=("hurts later",))
    desk = Desk(newer)
    told = await desk.reload()
    assert told == desk.reloader.summary() | {"at_age": told["at_age"]}
    assert (told["number"], told["problem"], told["changed"]) == (1, "", ["models"])
    assert told["warnings"] == ["hurts later"]
    assert desk.applied == [newer]
    assert desk.told == [("models",)]
    assert desk.emitted == []
    assert desk.reloader.wishes == newer


async def test_an_invalid_file_is_refused_as_a_whole_and_the_next_good_one_clears_that() -> None:
    desk = Desk(UsageError("elasticd.yaml: 2 problems"), changed())
    told = await desk.reload()
    assert told["problem"] == "elasticd.yaml: 2 problems"
    assert desk.applied == []
    assert desk.reloader.wishes == desk.first
    assert (await desk.reload())["problem"] == ""
    assert len(desk.applied) == 1


async def test_whatever_breaks_while_it_is_read_the_old_one_goes_on() -> None:
    desk = Desk(ZeroDivisionError("a bug"))
    assert "a bug" in (await desk.reload())["problem"]
    assert desk.reloader.wishes == desk.first


async def test_a_pool_whose_provider_cannot_be_made_refuses_the_whole_file() -> None:
    desk = Desk(changed())
    desk.apply_error = PoolRefused("pool 'x' cannot be opened: no credentials")
    assert "no credentials" in (await desk.reload())["problem"]
    assert desk.reloader.wishes == desk.first


async def test_a_pool_with_machines_cannot_be_taken_out() -> None:
    desk = Desk(without_lab(), machines={"lab": 3})
    told = await desk.reload()
    assert told["problem"] == "node_pools: pool lab still has 3 machines"
    assert desk.applied == []
    free = Desk(without_lab(), machines={"other": 3})
    assert (await free.reload())["problem"] == ""


async def test_what_needs_a_restart_is_told_until_there_is_one() -> None:
    desk = Desk(
        changed(restart="yes"), changed(restart="yes"), UsageError("bad"), changed(restart="")
    )
    told = [(await desk.reload())["needs_restart"] for _ in range(4)]
    assert told == [["restart"], ["restart"], ["restart"], []]


async def test_a_refused_reload_is_told_to_the_journal_with_who_asked() -> None:
    desk = Desk(
        UsageError("elasticd.yaml: 2 problems"),
        without_lab(),
        ValueError("a bug"),
        UsageError("worse"),
    )
    desk.machines = {"lab": 1}
    for _ in range(3):
        await desk.reload()
    first, second, third = desk.emitted
    assert first == ReloadRefused("elasticd.yaml: 2 problems", "ann")
    assert "pool lab still has" in second.problem
    assert "a bug" in third.problem
    asked = asyncio.ensure_future(desk.reloader.run())
    desk.reloader.request()
    async with asyncio.timeout(20):
        while len(desk.emitted) < 4:
            await asyncio.sleep(0)
    assert desk.emitted[-1].by == "SIGHUP"
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def test_a_reload_that_blocks_is_refused_in_time_and_the_next_one_works() -> None:
    reading, never = threading.Event(), threading.Event()

    class Hanging(Plain):
        def reread(self) -> Any:
            if not reading.is_set():
                reading.set()
                never.wait(60)
            return Plain.reread(self)

    desk = Desk()
    hanging = Hanging(desk.first.spec, desk.first.pools, next=[changed()])
    reloader = desk.reloader_of(hanging, limit=0.2)
    blocked = asyncio.ensure_future(reloader.reload("ann"))
    assert await asyncio.to_thread(reading.wait, 20)
    assert reloader.summary()["running_for"] >= 0.0
    told = await blocked
    assert "took longer than 0.2 s" in told["problem"]
    assert told["running_for"] is None
    assert desk.emitted == [ReloadRefused(told["problem"], "ann")]
    assert (await reloader.reload("ann"))["problem"] == ""
    assert len(desk.applied) == 1
    never.set()


async def test_a_request_during_a_reload_is_not_lost_and_many_are_one() -> None:
    reading, go_on = threading.Event(), threading.Event()

    class Slow(Plain):
        def reread(self) -> Any:
            reading.set()
            assert go_on.wait(20)
            return Plain.reread(self)

    desk = Desk()
    slow = Slow(desk.first.spec, desk.first.pools, next=[changed(), changed(restart="yes")])
    reloader = desk.reloader_of(slow)
    running = asyncio.ensure_future(reloader.run())
    reloader.request()
    assert await asyncio.to_thread(reading.wait, 20)
    for _ in range(5):
        reloader.request()
    go_on.set()
    async with asyncio.timeout(20):
        while reloader.summary()["number"] < 2:
            await asyncio.sleep(0)
    assert reloader.summary()["needs_restart"] == ["restart"]
    assert slow.next == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reloader.summary()["number"] == 2
