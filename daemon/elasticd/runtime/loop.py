"""The control loop: the one task that calls the core.

One round: take what has happened → let the core decide → give the gateway its table → write the
ledger → act. Sleeps until the plan's `wake_at` or until something happens. A fault in here is
never swallowed: nothing more is done, health turns red, and the process ends to be restarted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from elasticd.core.actions import Action, LaunchNode, Plan, PublishTable
from elasticd.core.events import Event, LaunchFailed
from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.routing_table import RoutingTable
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import JournalEntry, LedgerWriteFailed
from elasticd.runtime.loop_health import LoopHealth
from elasticd.runtime.performer import Call, subject_of
from elasticd.runtime.ports import Clock, ControlCore
from elasticd.runtime.recorder import Recorder

SHORTEST_PAUSE = 0.02
"""Seconds: a `wake_at` that has passed already must not turn the loop into a spin."""

ASK_LAUNCH_AFTER = 10.0
"""Seconds until a launch is tried again that could not be written down first."""

_log = structlog.get_logger()


class ControlLoopFailed(ElasticdError):
    """The loop met a fault of its own and has stopped acting."""


class Commits(Protocol):
    """The ledger, as far as the loop needs it."""

    async def commit(
        self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]
    ) -> None: ...


class Starts(Protocol):
    """The executor, as far as the loop needs it."""

    def start(self, actions: Iterable[Call]) -> None: ...


class ControlLoop:
    """Runs the core. `publish` gives the gateway a table and returns at once."""

    def __init__(
        self,
        core: ControlCore,
        clock: Clock,
        inbox: Inbox,
        ledger: Commits,
        executor: Starts,
        publish: Callable[[RoutingTable], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._inbox = inbox
        self._ledger = ledger
        self._executor = executor
        self._publish = publish
        self._recorder = Recorder()
        self._stopping = False
        self.health = LoopHealth(clock)

    async def run(self) -> None:
        """Until `request_stop`. Raises `ControlLoopFailed`."""
        try:
            plan = await self._round(self._inbox.take_now(), act=not self._stopping)
            while not self._stopping:
                events = await self._inbox.take(self._pause(plan))
                if not self._stopping or events:
                    plan = await self._round(events, act=not self._stopping)
        except Exception as fault:
            self.health.fail(fault)
            _log.exception("control_loop_failed")
            raise ControlLoopFailed(
                f"the control loop met a fault and stopped acting: {fault!r}; the gateway goes on "
                "with its last table, the controller must be restarted"
            ) from fault

    def request_stop(self) -> None:
        """No new action from now on; `run` returns after the round under way."""
        self._stopping = True
        self._inbox.poke()

    async def flush(self) -> None:
        """Writes down what was still heard after the stop; acts on nothing."""
        await self._round(self._inbox.take_now(), act=False)

    def _pause(self, plan: Plan) -> float | None:
        if plan.wake_at is None:
            return None
        return max(plan.wake_at - self._clock.now(), SHORTEST_PAUSE)

    async def _round(self, events: Sequence[Event], *, act: bool) -> Plan:
        with self.health.busy():
            now = self._clock.now()
            plan = self._core.step(now, events)
            self._recorder.note(now, events, plan, self._core.changed_rows())
            calls = self._publish_first(plan.actions)
            written = await self._write(now)
            _tell(events, plan)
            if act:
                self._executor.start(calls if written else self._withhold_launches(calls))
        return plan

    def _publish_first(self, actions: Iterable[Action]) -> list[Call]:
        """Closing a route waits for nothing. Returns the actions that wait for the ledger."""
        calls: list[Call] = []
        for action in actions:
            if isinstance(action, PublishTable):
                self._publish(action.table)
            else:
                calls.append(action)
        return calls

    async def _write(self, now: float) -> bool:
        """Whether the ledger has everything. What it could not take is kept for the next time."""
        recorder = self._recorder
        if not recorder.pending:
            return True
        try:
            await self._ledger.commit(now, recorder.rows, recorder.entries)
        except LedgerWriteFailed as failed:
            if not self.health.ledger_error:
                _log.error("ledger_write_failed", error=str(failed), effect="nothing is bought")
            self.health.ledger_error = str(failed)
            return False
        if self.health.ledger_error:
            _log.info("ledger_written_again")
        self.health.ledger_error = ""
        recorder.written()
        return True

    def _withhold_launches(self, calls: list[Call]) -> list[Call]:
        """Without a ledger nothing is bought; ending, draining and orders to nodes go on.

        A machine bought unrecorded could be forgotten. Ending one twice, or a replica that a
        later life does not know and takes down, harms nobody.
        """
        allowed: list[Call] = []
        for call in calls:
            if isinstance(call, LaunchNode):
                message = f"the ledger cannot be written: {self.health.ledger_error}"
                self._inbox.put(
                    LaunchFailed(
                        call.node_id, "LedgerWriteFailed", message, False, ASK_LAUNCH_AFTER
                    )
                )
            else:
                allowed.append(call)
        return allowed


def _tell(events: Sequence[Event], plan: Plan) -> None:
    """One line for a round that changed something."""
    if not plan.actions and not plan.reasons:
        return
    _log.info(
        "tick",
        why=[f"{reason.subject}: {reason.text}" for reason in plan.reasons],
        actions=[_named(action) for action in plan.actions],
        after=dict(Counter(type(event).__name__ for event in events)),
    )


def _named(action: Action) -> str:
    if isinstance(action, PublishTable):
        return f"PublishTable {action.table.epoch}/{action.table.version}"
    return f"{type(action).__name__} {subject_of(action)}"
