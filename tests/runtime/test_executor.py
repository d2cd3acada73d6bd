"""Actions run side by side, none twice at once, and each is heard of exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

from elasticd.core.actions import TerminateNode
from elasticd.core.events import DownRequested, Event
from elasticd.runtime.executor import Executor
from tests.runtime.fakes import LAUNCH, START, STOP, TERMINATE
from tests.runtime.virtual import settle, virtual


class Gate:
    """A performer whose actions end when the test lets them."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.open: dict[Any, asyncio.Event] = {}

    async def perform(self, action: Any) -> Event:
        self.begun.append(action)
        await self.open.setdefault(action, asyncio.Event()).wait()
        return DownRequested(type(action).__name__)

    def let(self, action: Any) -> None:
        self.open.setdefault(action, asyncio.Event()).set()


@virtual
async def test_a_slow_action_delays_no_other() -> None:
    gate, heard = Gate(), list[Event]()
    executor = Executor(gate, heard.append)
    executor.start([LAUNCH, TERMINATE])
    gate.let(TERMINATE)
    await settle()
    assert heard == [DownRequested("TerminateNode")]
    assert executor.in_flight == ["LaunchNode node-1"]
    await executor.aclose()


@virtual
async def test_a_repeat_while_one_is_under_way_is_dropped_and_taken_again_after_it() -> None:
    gate, heard = Gate(), list[Event]()
    executor = Executor(gate, heard.append)
    executor.start([LAUNCH])
    executor.start([LAUNCH, LAUNCH])
    await settle()
    assert gate.begun == [LAUNCH]
    gate.let(LAUNCH)
    await settle()
    assert len(heard) == 1
    executor.start([LAUNCH])
    await settle()
    assert gate.begun == [LAUNCH, LAUNCH]
    assert len(heard) == 2


@virtual
async def test_the_same_call_may_be_started_from_the_event_that_ended_it() -> None:
    gate, executor = Gate(), None
    gate.let(LAUNCH)
    heard = list[Event]()

    def again(event: Event) -> None:
        heard.append(event)
        if len(heard) == 1:
            executor.start([LAUNCH])

    executor = Executor(gate, again)
    executor.start([LAUNCH])
    await settle()
    assert len(heard) == 2


@virtual
async def test_orphans_are_told_apart_by_their_instance() -> None:
    gate = Gate()
    executor = Executor(gate, lambda event: None)
    orphans = [TerminateNode("", "lab", "i-1"), TerminateNode("", "lab", "i-2")]
    executor.start(orphans)
    await settle()
    assert gate.begun == orphans
    await executor.aclose()


@virtual
async def test_a_stop_never_overtakes_its_start() -> None:
    gate = Gate()
    executor = Executor(gate, lambda event: None)
    executor.start([START])
    executor.start([STOP])
    await settle()
    assert gate.begun == [START]
    gate.let(START)
    await settle()
    assert gate.begun == [START, STOP]
    await executor.aclose()


@virtual
async def test_ending_a_machine_does_not_wait_for_a_launch_that_hangs() -> None:
    gate = Gate()
    executor = Executor(gate, lambda event: None)
    executor.start([LAUNCH])
    executor.start([TERMINATE])
    await settle()
    assert gate.begun == [LAUNCH, TERMINATE]
    await executor.aclose()


@virtual
async def test_closing_gives_answers_their_grace_and_cancels_the_rest() -> None:
    gate, heard = Gate(), list[Event]()
    executor = Executor(gate, heard.append)
    executor.start([LAUNCH, START])
    asyncio.get_running_loop().call_later(1.0, gate.let, LAUNCH)
    await executor.aclose(grace=3.0)
    assert heard == [DownRequested("LaunchNode")]
    assert executor.in_flight == []
    assert asyncio.get_running_loop().time() == 3.0
