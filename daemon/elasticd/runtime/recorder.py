"""Decides what of each step goes into the ledger, and holds it until it is there.

The gateway's samples come twice a second and lists repeat themselves: what changed nothing is
not written, and of what is written again only the difference (`journal_fold`). Samples of steps
that were left out are summed up in the next entry with a decision, so that the journal still
tells what load it was made under.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

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
    OfferingsListed,
)
from elasticd.core.fleet import Row
from elasticd.runtime.journal_fold import Folder
from elasticd.runtime.ledger import JournalEntry

_LONGEST_BACKLOG = 1000
"""Entries that are held while the disk takes none; the rows are held whatever happens."""


class Recorder:
    """Between the loop and the ledger: `note` each step, write `rows` and `entries`, `written`."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._entries: list[JournalEntry] = []
        self._samples = _Samples()
        self._folder = Folder()
        self._last_seen: dict[tuple[str, ...], object] = {}

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

    def note(self, at: float, events: Sequence[Event], plan: Plan, rows: Iterable[Row]) -> None:
        """Takes one step in."""
        changed = {(row.kind, row.id): row for row in rows}
        self._rows.update(changed)
        others = self._samples.take_from(events)
        news = [event for event in others if self._is_news(event)]
        decided = bool(plan.actions or plan.reasons)
        if changed or news or decided:
            told = (*self._samples.empty(), *others) if decided else others
            folded = tuple(self._folder.fold(event) for event in told)
            self._entries.append(JournalEntry(at, folded, plan_to_json(plan)))
            self._shorten()

    def written(self) -> None:
        """Everything is on the disk."""
        self._rows.clear()
        self._entries.clear()

    def _shorten(self) -> None:
        """The disk takes nothing: what is dropped here must not be what later entries rest on."""
        if len(self._entries) > _LONGEST_BACKLOG:
            self._entries.clear()
            self._folder.forget()

    def _is_news(self, event: Event) -> bool:
        """Whether a fact that is told again and again differs from the last time."""
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
                [(n.node_id, n.alive, n.gpus, n.boot, n.held) for n in event.nodes],
                [
                    (r.replica_id, r.incarnation, r.node_id, r.phase, r.url, r.error)
                    for r in event.replicas
                ],
            )
        case _:
            return event


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON, its actions tagged by kind."""
    return {
        "actions": [to_json(action) for action in plan.actions],
        "reasons": [{"subject": r.subject, "text": r.text} for r in plan.reasons],
        "wake_at": plan.wake_at,
    }


class _Samples:
    """The gateway's samples since the last entry: per model in one, loads as the last told."""

    def __init__(self) -> None:
        self._demand: dict[str, DemandSampled] = {}
        self._loads: LoadSampled | None = None

    def take_from(self, events: Sequence[Event]) -> list[Event]:
        """Folds the samples in; returns the other events."""
        others: list[Event] = []
        for event in events:
            if isinstance(event, DemandSampled):
                self._fold(event)
            elif isinstance(event, LoadSampled):
                self._loads = event
            else:
                others.append(event)
        return others

    def _fold(self, sample: DemandSampled) -> None:
        earlier = self._demand.get(sample.model)
        if earlier is not None:
            sample = replace(
                sample,
                peak=max(earlier.peak, sample.peak),
                arrivals=earlier.arrivals + sample.arrivals,
            )
        self._demand[sample.model] = sample

    def empty(self) -> list[Event]:
        """The folded samples; begins anew."""
        folded: list[Event] = list(self._demand.values())
        if self._loads is not None:
            folded.append(self._loads)
        self._demand, self._loads = {}, None
        return folded
