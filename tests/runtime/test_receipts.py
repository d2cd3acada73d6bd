"""What people are told is accepted is in the ledger, or they are told that it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from elasticd.core.actions import Plan, Reason
from elasticd.core.events import DownRequested, Event
from elasticd.ops.admin_http import Refused
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import LedgerWriteFailed
from elasticd.runtime.loop import ControlLoop, ControlLoopFailed
from tests.runtime.fakes import NOTHING, Diary, ScriptedCore
from tests.runtime.virtual import LoopClock, virtual

GO = DownRequested("go")
DECIDED = Plan((), (Reason("fleet", "everything is given back"),), None)


class House:
    """A loop that runs, and somebody who asks it for something."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self.diary = Diary()
        self._inbox = Inbox()
        core = ScriptedCore(self._decide)
        self.loop = ControlLoop(
            core, LoopClock(0.0), self._inbox, self.diary, self.diary, self.diary.publish
        )

    async def ask(self) -> bool:
        self._inbox.put(GO)
        return await self.loop.recorded()

    def _decide(self, _now: float, events: Sequence[Event]) -> Plan:
        if GO not in events:
            return NOTHING
        if self._fault is not None:
            raise self._fault
        return DECIDED


@virtual
async def test_an_answer_comes_after_the_commit_that_holds_what_was_asked() -> None:
    house = House()
    async with asyncio.TaskGroup() as group:
        group.create_task(house.loop.run())
        assert await house.ask()
        [(_, entries)] = house.diary.said("commit")
        assert [event["type"] for event in entries[0].events] == ["DownRequested"]
        house.loop.request_stop()


@virtual
async def test_what_is_asked_during_a_commit_waits_for_the_next_one() -> None:
    house = House()
    async with asyncio.TaskGroup() as group:
        group.create_task(house.loop.run())
        first = group.create_task(house.ask())
        await asyncio.sleep(0.002)  # virtual: the first commit is under way
        assert house.diary.said("commit") == []
        assert await house.ask()
        assert first.done()
        assert len(house.diary.said("commit")) == 2
        house.loop.request_stop()


@virtual
async def test_where_the_ledger_cannot_be_written_the_answer_says_so() -> None:
    house = House()
    house.diary.commit_error = LedgerWriteFailed("disk full")
    async with asyncio.TaskGroup() as group:
        group.create_task(house.loop.run())
        assert not await house.ask()
        house.loop.request_stop()


@virtual
async def test_whoever_waits_when_the_loop_fails_is_refused() -> None:
    house = House(RuntimeError("a fault"))
    running = asyncio.create_task(house.loop.run())
    with pytest.raises(Refused, match="nothing is done any more"):
        await house.ask()
    with pytest.raises(ControlLoopFailed):
        await running
