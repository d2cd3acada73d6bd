"""The loop writes before it acts, wakes when it should, and never acts on a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from elasticd.core.actions import LaunchNode, Plan, PublishTable, Reason
from elasticd.core.events import DemandSampled, DownRequested, Event, LaunchAnswered, LaunchFailed
from elasticd.core.fleet import Row
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import LedgerWriteFailed
from elasticd.runtime.loop import ControlLoop, ControlLoopFailed
from tests.runtime.fakes import (
    INSTANCE,
    LAUNCH,
    NOTHING,
    OFFERING,
    START,
    STOP,
    TERMINATE,
    Diary,
    ScriptedCore,
    table,
)
from tests.runtime.virtual import LoopClock, virtual

ACTING = Plan(
    (LAUNCH, TERMINATE, START, PublishTable(table(1)), STOP),
    (Reason("node:node-1", "wanted"),),
    None,
)
GO = DownRequested("go")


class House:
    """A loop with everything around it replaced."""

    def __init__(self, decide: Callable[[float, Sequence[Event]], Plan]) -> None:
        self.core = ScriptedCore(decide)
        self.diary = Diary()
        self.inbox = Inbox()
        self.loop = ControlLoop(
            self.core, LoopClock(0.0), self.inbox, self.diary, self.diary, self.diary.publish
        )

    async def live(self, seconds: float, *puts: tuple[float, Event]) -> None:
        """Runs for so long in virtual time, with events put at their times, then stops."""
        timers = asyncio.get_running_loop()
        for at, event in puts:
            timers.call_later(at, self.inbox.put, event)
        timers.call_later(seconds, self.loop.request_stop)
        await self.loop.run()


def on_go(plan: Plan) -> Callable[[float, Sequence[Event]], Plan]:
    return lambda now, events: plan if GO in events else NOTHING


@virtual
async def test_routes_go_out_first_then_the_ledger_then_the_actions() -> None:
    house = House(on_go(ACTING))
    await house.live(2.0, (1.0, GO))
    assert [name for name, _ in house.diary.lines] == [
        "publish",
        "commit",
        "start",
        "start",
        "start",
        "start",
    ]
    assert house.diary.said("start") == [LAUNCH, TERMINATE, START, STOP]


@virtual
async def test_rows_and_journal_entry_of_a_step_are_one_commit() -> None:
    house = House(on_go(ACTING))
    row = Row("node", "node-1", {"phase": "requested"})
    house.core.rows = [row]
    await house.live(2.0, (1.0, GO))
    (first_rows, _), (_, entries) = house.diary.said("commit")
    assert first_rows == (row,)
    assert [entry.at for entry in entries] == [1.0]


@virtual
async def test_a_round_that_changed_nothing_writes_and_says_nothing() -> None:
    house = House(lambda now, events: Plan((), (), now + 1.0))
    with capture_logs() as logs:
        await house.live(5.5, (1.5, DemandSampled("tiny", 0, 0, 0, 0)))
    assert len(house.core.steps) >= 6
    assert house.diary.lines == []
    assert logs == []


@virtual
async def test_it_wakes_when_the_plan_says_and_when_something_happens() -> None:
    house = House(lambda now, events: Plan((), (), 10.0 if now < 10.0 else None))
    await house.live(100.0, (4.0, GO), (50.0, GO))
    assert [now for now, _ in house.core.steps] == pytest.approx([0.0, 4.0, 10.0, 50.0], abs=0.1)


@virtual
async def test_a_wake_time_that_has_passed_does_not_spin() -> None:
    house = House(lambda now, events: Plan((), (), 0.0))
    await house.live(1.0)
    assert 10 <= len(house.core.steps) <= 60


@virtual
async def test_a_burst_becomes_one_step_in_order() -> None:
    house = House(lambda now, events: NOTHING)
    burst = [DownRequested(str(n)) for n in range(50)]
    asyncio.get_running_loop().call_later(1.0, lambda: [house.inbox.put(e) for e in burst])
    await house.live(2.0)
    assert [events for _, events in house.core.steps if events] == [tuple(burst)]


@virtual
async def test_what_happens_during_a_commit_is_in_the_next_step() -> None:
    house = House(on_go(ACTING))
    late = DownRequested("late")
    await house.live(2.0, (1.0, GO), (1.002, late))  # the commit takes 5 ms
    assert [events for _, events in house.core.steps if events] == [(GO,), (late,)]


@virtual
async def test_one_line_tells_what_a_round_did_and_why() -> None:
    house = House(on_go(ACTING))
    with capture_logs() as logs:
        await house.live(2.0, (1.0, GO))
    [line] = logs
    assert line["event"] == "tick"
    assert line["why"] == ["node:node-1: wanted"]
    assert line["after"] == {"DownRequested": 1}
    assert line["actions"] == [
        "LaunchNode node-1",
        "TerminateNode node-1",
        "StartReplica replica-1/1",
        "PublishTable 1/1",
        "StopReplica replica-1/1",
    ]


@virtual
async def test_what_is_asked_again_and_again_is_one_line_a_minute() -> None:
    def decide(now: float, events: Sequence[Event]) -> Plan:
        node = LaunchNode(f"node-{len(house.core.steps)}", "lab", (OFFERING,))
        return Plan((node,), (), now + 5.0)

    house = House(decide)
    with capture_logs() as logs:
        await house.live(600.0)
        await house.loop.flush()
    assert 10 <= len(logs) <= 12
    assert sum(line.get("folded", 1) for line in logs) == len(house.core.steps)
    assert len(house.diary.said("start")) == len(house.core.steps) - 1  # the last acts on nothing


@virtual
async def test_a_stop_during_a_commit_begins_nothing_of_what_was_decided() -> None:
    house = House(on_go(ACTING))
    row = Row("node", "node-1", {"phase": "requested"})
    house.core.rows = [row]
    await house.live(0.002)  # the commit takes 5 ms
    assert house.diary.said("start") == []
    [(rows, _)] = house.diary.said("commit")
    assert rows == (row,)


@virtual
async def test_a_fault_while_the_last_words_are_written_is_told_as_one() -> None:
    def decide(now: float, events: Sequence[Event]) -> Plan:
        if GO in events:
            raise ZeroDivisionError("a bug")
        return NOTHING

    house = House(decide)
    await house.live(1.0)
    house.inbox.put(GO)
    with capture_logs(), pytest.raises(ControlLoopFailed, match="a bug"):
        await house.loop.flush()
    assert "a bug" in house.loop.health.fault


@virtual
async def test_it_tells_how_long_its_rounds_take() -> None:
    house = House(on_go(ACTING))
    assert house.loop.health.summary()["round_longest"] is None
    await house.live(2.0, (1.0, GO))
    told = house.loop.health.summary()
    assert told["round_longest"] == pytest.approx(0.005)
    assert told["round_median"] <= 0.005


@virtual
async def test_a_fault_in_a_step_stops_all_acting_and_is_raised() -> None:
    def decide(now: float, events: Sequence[Event]) -> Plan:
        if GO in events:
            raise ZeroDivisionError("a bug")
        return NOTHING

    house = House(decide)
    with capture_logs() as logs, pytest.raises(ControlLoopFailed, match="a bug"):
        await house.live(100.0, (1.0, GO), (2.0, GO))
    assert house.diary.said("start") == []
    assert asyncio.get_running_loop().time() < 2.0
    assert "a bug" in house.loop.health.problem
    assert [line["event"] for line in logs] == ["control_loop_failed"]


@virtual
async def test_a_fault_of_the_ledger_file_stops_all_acting() -> None:
    house = House(on_go(ACTING))
    house.diary.commit_error = RuntimeError("database disk image is malformed")
    with capture_logs(), pytest.raises(ControlLoopFailed, match="malformed"):
        await house.live(100.0, (1.0, GO))
    assert house.diary.said("start") == []


@virtual
async def test_a_full_disk_stops_buying_and_nothing_else() -> None:
    house = House(on_go(ACTING))
    house.diary.commit_error = LedgerWriteFailed("database or disk is full")
    await house.live(1.5, (1.0, GO))
    assert house.diary.said("start") == [TERMINATE, START, STOP]
    assert house.diary.said("publish") == [1]
    [failed] = [e for _, events in house.core.steps for e in events if isinstance(e, LaunchFailed)]
    assert (failed.node_id, failed.definite) == ("node-1", False)
    assert "disk is full" in failed.message
    assert house.loop.health.ledger_error == "database or disk is full"
    assert house.loop.health.problem == ""


@virtual
async def test_what_a_full_disk_did_not_take_is_written_as_soon_as_it_does() -> None:
    house = House(on_go(ACTING))
    row = Row("node", "node-1", {"phase": "requested"})
    house.core.rows = [row]
    house.diary.commit_error = LedgerWriteFailed("database or disk is full")
    asyncio.get_running_loop().call_later(2.0, setattr, house.diary, "commit_error", None)
    await house.live(4.0, (1.0, GO), (3.0, GO))
    rows, entries = house.diary.said("commit")[-1]
    assert rows == (row,)
    assert 1.0 in [entry.at for entry in entries]
    assert house.diary.said("start")[-4:] == [LAUNCH, TERMINATE, START, STOP]
    assert house.loop.health.ledger_error == ""


@virtual
async def test_after_a_stop_nothing_is_begun_but_what_is_heard_is_written() -> None:
    house = House(lambda now, events: ACTING)
    house.loop.request_stop()
    await house.loop.run()
    house.inbox.put(LaunchAnswered("node-1", INSTANCE))
    await house.loop.flush()
    assert house.diary.said("start") == []
    _, entries = house.diary.said("commit")[-1]
    assert entries[-1].events[0]["type"] == "LaunchAnswered"


@virtual
async def test_a_stop_waits_for_the_round_under_way() -> None:
    house = House(on_go(ACTING))
    await house.live(1.002, (1.0, GO))  # the commit takes 5 ms
    assert [name for name, _ in house.diary.lines][:2] == ["publish", "commit"]
    assert len(house.diary.said("commit")) == 1


@virtual
async def test_a_round_that_hangs_is_a_problem_of_the_loop() -> None:
    house = House(on_go(ACTING))

    async def never(*_: Any) -> None:
        await asyncio.sleep(1000.0)

    house.diary.commit = never  # type: ignore[method-assign]
    task = asyncio.ensure_future(house.live(5000.0, (1.0, GO)))
    await asyncio.sleep(20.0)
    assert house.loop.health.problem == ""
    await asyncio.sleep(30.0)
    assert house.loop.health.problem == "one round has been under way for 49 s"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
