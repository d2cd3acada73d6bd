"""Runs a journal through the core again and compares what it decides with what was decided.

Exact within one core: the same rows and the same steps give the same plans, down to each word of
each reason. A life of the controller is run from its beginning, or from where it was written what
the core remembers, which is more than its rows tell; what stands before the first such place, or
after a part that is missing, is skipped up to the next one, and the report says so. Nothing here
touches the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event
from elasticd.core.fleet import Row
from elasticd.runtime.core_memory import NotMemory, core_of
from elasticd.runtime.core_version import core_version
from elasticd.runtime.journal_fold import Unfolder, Unreadable
from elasticd.runtime.journal_quiet import Began, Gap, Memory, QuietStep, read_quiet
from elasticd.runtime.ledger_journal import JournalEntry
from elasticd.runtime.ports import ControlCore
from elasticd.runtime.recorder import plan_to_json
from elasticd.runtime.replay_report import Difference, Life, Report, Skipped

CoreFactory = Callable[[str, int, Sequence[Row]], ControlCore]

NOTHING: Final[dict[str, Any]] = {"actions": [], "reasons": []}
"""What a quiet step decided."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How to replay. `anyway`: also what another core decided. `most`: differences to keep.

    `core`: the version of what `make_core` makes.
    """

    anyway: bool = False
    most: int = 10
    core: str = field(default_factory=core_version)
    make_core: CoreFactory = Core


def replay(
    entries: Iterable[JournalEntry],
    rules: Rules | None = None,
    progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Runs all of it; `progress` is called after each entry, with the report so far."""
    run = _Run(rules or Rules())
    for entry in entries:
        run.take(entry)
        progress(run.report)
    return run.report


class _CannotFollow(Exception):
    """Why the entries from here on cannot be replayed."""

    def __init__(self, why: str, *, damaged: bool = False) -> None:
        super().__init__(why)
        self.damaged = damaged


class _Run:
    """Goes through the journal once: follows a life, or knows why it cannot."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.report = Report(rules.core)
        self._follower: _Follower | None = None
        self._why = _CannotFollow("")
        self._epoch = self._seq = 0

    def take(self, entry: JournalEntry) -> None:
        """The next entry."""
        self.report.entries += 1
        try:
            self._check_place(entry)
            self._run(entry)
        except Unreadable as bad:
            why = f"entry {entry.seq} is damaged ({bad})"
            self._follower, self._why = None, _CannotFollow(why, damaged=True)
        except _CannotFollow as why:
            self._follower, self._why = None, why
        if self._follower is None:
            self._skip(entry.seq, entry.seq)

    def _check_place(self, entry: JournalEntry) -> None:
        """Whether it follows the entry before; otherwise nothing is followed, up to a beginning."""
        epoch, seq = self._epoch, self._seq
        self._seq = entry.seq
        if entry.damaged:  # it belongs to no life; what it told is lost to the one it stands in
            raise _CannotFollow(f"damaged around entry {entry.seq}", damaged=True)
        self._epoch = entry.epoch
        if entry.epoch != epoch:
            self._follower = None
            if not self._why.damaged:  # else the beginning may have been in there
                self._why = _CannotFollow(_no_beginning(entry, first=epoch == 0))
        elif entry.seq != seq + 1:
            why = f"entries are missing up to {entry.seq}"
            self._follower, self._why = None, _CannotFollow(why, damaged=True)
            self._skip(seq + 1, entry.seq - 1)

    def _run(self, entry: JournalEntry) -> None:
        for line in read_quiet(entry.quiet):
            match line:
                case Began():
                    self._follower = self._begin(line, entry)
                case Memory():
                    self._resume(line, entry)
                case Gap():
                    why = "steps before could not be written, for the disk took none"
                    self._follower, self._why = None, _CannotFollow(why)
                    self._skip(entry.seq, entry.seq)
                case QuietStep() if self._follower is not None:
                    self._follower.quiet(entry, line)
        if self._follower is not None and entry.plan.get("step", True):
            self._follower.decided(entry)

    def _begin(self, began: Began, entry: JournalEntry) -> _Follower:
        rules = self._rules
        if entry.core != rules.core and not rules.anyway:
            raise _CannotFollow(f"decided by another core: {entry.core or 'unknown'}")
        life = Life(began.epoch, entry.core)
        try:
            core = rules.make_core(began.ledger_id, began.epoch, began.rows)
        except Exception as fault:  # the core under test: whatever it does is the answer
            raise _CannotFollow(f"the core cannot begin from the rows: {fault!r}") from fault
        return self._follow(core, life)

    def _resume(self, memory: Memory, entry: JournalEntry) -> None:
        """Only the very same core can go on from what it remembered."""
        if self._follower is not None:
            self._follower.begin_anew()
        elif entry.core == self._rules.core:
            try:
                core = core_of(memory.memory)
            except NotMemory as bad:
                raise Unreadable(str(bad)) from bad
            self._follower = self._follow(core, Life(entry.epoch, entry.core, whole=False))

    def _follow(self, core: ControlCore, life: Life) -> _Follower:
        self.report.lives.append(life)
        self._why = _CannotFollow("")
        return _Follower(core, life, self.report.differences, self._rules.most)

    def _skip(self, first: int, last: int) -> None:
        why, skipped = str(self._why), self.report.skipped
        if skipped and (skipped[-1].epoch, skipped[-1].why) == (self._epoch, why):
            skipped[-1].last_seq = last
        else:
            skipped.append(Skipped(self._epoch, first, last, why, self._why.damaged))


def _no_beginning(entry: JournalEntry, *, first: bool) -> str:
    if not entry.core:
        return "written by an elasticd that did not record what a replay needs"
    if first:
        return "the journal was trimmed, and the beginning of this life is no longer in it"
    return "the beginning of this life was not recorded"


class _Follower:
    """Follows one life, step by step."""

    def __init__(
        self, core: ControlCore, life: Life, differences: list[Difference], most: int
    ) -> None:
        self._core = core
        self._life = life
        self._unfolder = Unfolder()
        self._differences = differences
        self._most = most

    def begin_anew(self) -> None:
        """What comes rests on nothing that came before."""
        self._unfolder = Unfolder()

    def quiet(self, entry: JournalEntry, step: QuietStep) -> None:
        """A step that had decided nothing."""
        events = self._events(step.events)
        plan = self._decide(entry, step.at, events, NOTHING)
        if plan.actions or plan.reasons:
            found = plan_to_json(plan)
            del found["wake_at"]  # it was not recorded
            self._differ(Difference(*_place(entry, step.at), events, True, NOTHING, found))

    def decided(self, entry: JournalEntry) -> None:
        """A step that stands in the journal with its plan."""
        self._life.decisions += 1
        events = self._events(entry.events)
        found = plan_to_json(self._decide(entry, entry.at, events, entry.plan))
        if found != entry.plan:
            self._differ(Difference(*_place(entry, entry.at), events, False, entry.plan, found))

    def _events(self, items: Iterable[Any]) -> tuple[Event, ...]:
        return tuple(self._unfolder.read(item) for item in items)

    def _decide(
        self, entry: JournalEntry, at: float, events: tuple[Event, ...], recorded: dict[str, Any]
    ) -> Plan:
        life = self._life
        life.steps += 1
        life.since, life.until = at if life.since is None else life.since, at
        try:
            plan = self._core.step(at, events)
            self._core.changed_rows()  # as the controller does, though nobody wants them here
        except Exception as fault:  # the core under test: whatever it does is the answer
            quiet = recorded is NOTHING
            told = Difference(*_place(entry, at), events, quiet, recorded, {}, repr(fault))
            self._differ(told)
            raise _CannotFollow(f"the core failed at a step of entry {entry.seq}") from fault
        return plan

    def _differ(self, difference: Difference) -> None:
        self._life.differences += 1
        if len(self._differences) < self._most:
            self._differences.append(difference)


def _place(entry: JournalEntry, at: float) -> tuple[int, int, float]:
    return entry.epoch, entry.seq, at
