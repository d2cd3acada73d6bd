"""The control loop: the one task that calls the core.

One round: take what has happened → let the core decide → give the gateway its table → write the
ledger → act. Sleeps until the plan's `wake_at` or until something happens. A fault in here is
never swallowed: nothing more is done, health turns red, and the process ends to be restarted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import structlog

from elasticd.core.actions import Action, LaunchNode, Plan, PublishTable
from elasticd.core.events import Event, LaunchFailed
from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.ops.admin_http import Refused
from elasticd.ops.repeats import Repeats, alike
from elasticd.routing_table import RoutingTable
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import JournalEntry, LedgerWriteFailed
from elasticd.runtime.loop_health import LoopHealth
from elasticd.runtime.performer import Call, subject_of
from elasticd.runtime.ports import Clock, ControlCore
from elasticd.runtime.receipts import Receipts
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
        recorder: Recorder | None = None,
    ) -> None:
        self._core = core
        self._clock = clock
        self._inbox = inbox
        self._ledger = ledger
        self._executor = executor
        self._publish = publish
        self._recorder = recorder or Recorder()
        self._stopping = False
        self._decided, self._repeated = Repeats(first=3), Repeats()
        self._receipts = Receipts()
        self.health = LoopHealth(clock)

    async def run(self) -> None:
        """Until `request_stop`. Raises `ControlLoopFailed`."""
        with self._failing_static():
            plan = await self._round(self._inbox.take_now(), act=not self._stopping)
            while not self._stopping:
                events = await self._inbox.take(self._pause(plan))
                if not self._stopping or events:
                    plan = await self._round(events, act=not self._stopping)

    async def recorded(self) -> bool:
        """Returns once what was put into the inbox until now has been decided on: whether the
        ledger has it. Raises `Refused` where nothing is decided any more."""
        return await self._receipts.wait()

    def request_stop(self) -> None:
        """No new action from now on; `run` returns after the round under way."""
        self._stopping = True
        self._inbox.poke()

    async def flush(self) -> None:
        """Writes down what was still heard after the stop; acts on nothing. Raises
        `ControlLoopFailed`."""
        with self._failing_static():
            await self._round(self._inbox.take_now(), act=False)
            now = self._clock.now()
            self._recorder.finish(now)
            await self._write(now)
        self._close_lines()

    @contextlib.contextmanager
    def _failing_static(self) -> Iterator[None]:
        """After a fault nobody knows what the core believes: nothing of it is written or done."""
        try:
            yield
        except Exception as fault:
            self.health.fail(fault)
            self._receipts.failed(Refused(503, f"nothing is done any more: {fault!r}"))
            self._close_lines()
            _log.exception("control_loop_failed")
            raise ControlLoopFailed(
                f"the control loop met a fault and stopped acting: {fault!r}; the gateway goes on "
                "with its last table, the controller must be restarted"
            ) from fault

    def _pause(self, plan: Plan) -> float | None:
        if plan.wake_at is None:
            return None
        return max(plan.wake_at - self._clock.now(), SHORTEST_PAUSE)

    async def _round(self, events: Sequence[Event], *, act: bool) -> Plan:
        with self.health.busy():
            self._receipts.begun()
            now = self._clock.now()
            plan = self._core.step(now, events)
            self._recorder.note(now, events, plan, self._core.changed_rows())
            calls = self._publish_first(plan.actions)
            written = await self._write(now)
            self._receipts.ended(written)
            self._tell(events, plan)
            if act and not self._stopping:  # asked to stop meanwhile: the next life asks
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

    def _tell(self, events: Sequence[Event], plan: Plan) -> None:
        """One line for a round that changed something; less often for what comes again and again.

        The journal has every round.
        """
        if not plan.actions and not plan.reasons:
            return
        # Without a reason nothing new was decided: something is asked again.
        lines = self._decided if plan.reasons else self._repeated
        lines.tell(
            "info",
            "tick",
            _kind(plan),
            why=[f"{reason.subject}: {reason.text}" for reason in plan.reasons],
            actions=[_named(action) for action in plan.actions],
            after=dict(Counter(type(event).__name__ for event in events)),
        )

    def _close_lines(self) -> None:
        for lines in (self._decided, self._repeated):
            lines.close()

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


def _kind(plan: Plan) -> tuple[frozenset[str], ...]:
    """Rounds that differ in ids and figures alone are of one kind."""
    return (
        frozenset(alike(reason.text) for reason in plan.reasons),
        frozenset(type(action).__name__ for action in plan.actions),
    )


def _named(action: Action) -> str:
    if isinstance(action, PublishTable):
        return f"PublishTable {action.table.epoch}/{action.table.version}"
    return f"{type(action).__name__} {subject_of(action)}"
