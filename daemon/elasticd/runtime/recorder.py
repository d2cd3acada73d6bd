"""Decides what of each step goes into the ledger, and holds it until it is there.

A step with a decision, changed rows or news is an entry of the journal. The steps between, which
the gateway's samples and lists that repeat themselves make twice a second, are kept in memory as
short as they can be and go with the next entry, so that an idle controller writes nothing and yet
every step can be run again (`runtime.replay`). After `QUIET_AGE` or `QUIET_SIZE` they get an entry
of their own, which is no step: its plan says `"step": false`. What the core remembers goes with
them now and then: a life may be longer than its journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from elasticd.core.actions import Plan
from elasticd.core.codec import to_json
from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    DemandSampled,
    Event,
    InstancesListed,
    ListFailed,
    LoadSampled,
    NoticeSeen,
    OfferingsListed,
)
from elasticd.core.fleet import Row
from elasticd.runtime.core_memory import NotMemory, remembered
from elasticd.runtime.core_version import core_version
from elasticd.runtime.journal_fold import Folder
from elasticd.runtime.journal_quiet import Began, Gap, Pack
from elasticd.runtime.ledger import JournalEntry, Restored

_LONGEST_BACKLOG = 1000
"""Entries that are held while the disk takes none; the rows are held whatever happens."""

QUIET_AGE = 900.0
"""Seconds for which quiet steps are kept in memory: what a crash may cost a replay."""

QUIET_SIZE = 128 * 1024
"""Bytes of quiet steps that are kept in memory, before they are packed."""

MEMORY_PERIOD = 3600.0
"""Seconds between two times at which it is written what the core remembers."""

_SAMPLES = (DemandSampled, LoadSampled)
"""Events that are never news by themselves."""

_log = structlog.get_logger()

NO_STEP: dict[str, Any] = {"actions": [], "reasons": [], "wake_at": None, "step": False}


class Recorder:
    """Between the loop and the ledger: `begin` with what was restored, `note` each step, write
    `rows` and `entries`, then `written`; `finish` before the last time."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._entries: list[JournalEntry] = []
        self._folder = Folder()
        self._quiet = Pack()
        self._last_seen: dict[tuple[str, ...], object] = {}
        self._core = core_version()
        self._gap_since: float | None = None
        self._mind: object | None = None
        self._remember_at: float | None = None

    @property
    def rows(self) -> list[Row]:
        """The latest form of every row not yet written."""
        return list(self._rows.values())

    @property
    def entries(self) -> list[JournalEntry]:
        """Journal entries not yet written, oldest first."""
        return list(self._entries)

    @property
    def pending(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._rows or self._entries)

    @property
    def quiet_size(self) -> int:
        """Bytes of quiet steps in memory."""
        return self._quiet.size

    def begin(self, restored: Restored, core: object | None = None) -> None:
        """What this life begins from; without it nobody can replay it.

        `core`: what decides, to be asked now and then what it remembers.
        """
        self._mind = core
        self._quiet.began(Began(restored.ledger_id, restored.epoch, restored.rows))

    def note(self, at: float, events: Sequence[Event], plan: Plan, rows: Iterable[Row]) -> None:
        """Takes one step in."""
        changed = {(row.kind, row.id): row for row in rows}
        self._rows.update(changed)
        news = [event for event in events if self._is_news(event)]
        if changed or news or plan.actions or plan.reasons:
            # Packed before the events are folded: they rest on the quiet steps before them.
            quiet = self._quiet.take()
            folded = tuple(self._folder.fold(event) for event in events)
            self._add(JournalEntry(at, folded, plan_to_json(plan), quiet=quiet, core=self._core))
        else:
            self._quiet.step(at, [self._folder.brief(event) for event in events])
            since = self._quiet.since
            if self._quiet.size >= QUIET_SIZE or (since is not None and at - since >= QUIET_AGE):
                self._flush(at)
        self._remember(at)

    def finish(self, at: float) -> None:
        """The last step has been noted: what is quiet is written, too."""
        if self._quiet.size:
            self._flush(at)

    def written(self) -> None:
        """Everything is on the disk."""
        self._rows.clear()
        self._entries.clear()
        self._gap_since = None

    def _flush(self, at: float) -> None:
        self._add(JournalEntry(at, (), NO_STEP, quiet=self._quiet.take(), core=self._core))

    def _add(self, entry: JournalEntry) -> None:
        self._entries.append(entry)
        if len(self._entries) > _LONGEST_BACKLOG:
            self._drop()

    def _remember(self, at: float) -> None:
        """Once in a while, after a step: from here on a replay can begin."""
        if self._remember_at is None:
            self._remember_at = at + MEMORY_PERIOD
        if self._mind is None or at < self._remember_at:
            return
        self._remember_at = at + MEMORY_PERIOD
        try:
            memory = remembered(self._mind)
        except NotMemory as unfit:
            self._mind = None
            _log.error("core_not_remembered", why=str(unfit), effect="replay from starts only")
            return
        self._folder.forget()
        self._quiet.memory(memory)

    def _drop(self) -> None:
        """The disk takes nothing. What is dropped must not be what later entries rest on, and
        they must say that something is missing before them."""
        if self._gap_since is None:
            self._gap_since = self._entries[0].at
        until = self._entries[-1].at
        self._entries.clear()
        self._folder.forget()
        self._quiet.gap(Gap(self._gap_since, until))
        self._remember_at = until

    def _is_news(self, event: Event) -> bool:
        """Whether a fact that is told again and again differs from the last time."""
        if isinstance(event, _SAMPLES):
            return False
        topic = _topic(event)
        if topic is None:
            return True
        fact = _essence(event)
        news = self._last_seen.get(topic) != fact
        self._last_seen[topic] = fact
        return news


def _topic(event: Event) -> tuple[str, ...] | None:
    """What a repeating fact is about; `None` for one that always counts."""
    match event:
        case ClusterObserved() | ClusterUnreachable():
            return ("cluster",)
        case InstancesListed():
            return ("instances", event.pool)
        case OfferingsListed():
            return ("offerings", event.pool)
        case ListFailed():
            return (event.what, event.pool)
        case _:
            return None


def _essence(event: Event) -> object:
    """What makes an event news: not how long a list took, nor progress, nor the end of a log."""
    match event:
        case InstancesListed():
            return replace(event, took=0.0)
        case ClusterObserved():
            return (
                event.complete,
                event.detail,
                [
                    (n.node_id, n.alive, n.gpus, n.boot, n.held, n.mismatch, _named(n.notices))
                    for n in event.nodes
                ],
                [
                    (r.replica_id, r.incarnation, r.node_id, r.phase, r.url, r.error)
                    for r in event.replicas
                ],
            )
        case _:
            return event


def _named(notices: Sequence[NoticeSeen]) -> list[str]:
    return [notice.notice_id for notice in notices]


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON, its actions tagged by kind."""
    return {
        "actions": [to_json(action) for action in plan.actions],
        "reasons": [{"subject": r.subject, "text": r.text} for r in plan.reasons],
        "wake_at": plan.wake_at,
    }
