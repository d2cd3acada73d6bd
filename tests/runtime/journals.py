"""Journals as a controller writes them, without a controller: what a core was told and decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event
from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalEntry, Restored
from elasticd.runtime.recorder import Recorder


class Journal:
    """Entries of any number of lives, as they come out of a ledger."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def write(self, recorder: Recorder, epoch: int) -> None:
        """A commit that succeeds."""
        for entry in recorder.entries:
            events, plan = json.loads(json.dumps([entry.events, entry.plan], allow_nan=False))
            seq = len(self.entries) + 1
            read = replace(entry, events=tuple(events), plan=plan, seq=seq, epoch=epoch)
            self.entries.append(read)
        recorder.written()


class RecordedCore:
    """A core whose every step goes into `journal`, which holds for all that are made from now."""

    journal = Journal()

    def __init__(self, ledger_id: str, epoch: int, rows: Sequence[Row] = ()) -> None:
        self._core = Core(ledger_id, epoch, rows)
        self._number = epoch
        self._noted: list[Row] = []
        self.recorder = Recorder()
        kept = json.loads(json.dumps([[row.kind, row.id, row.doc] for row in rows]))
        restored = Restored(ledger_id, epoch, 0.0, tuple(Row(*row) for row in kept))
        self.recorder.begin(restored, self._core)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        plan = self._core.step(now, events)
        rows = self._core.changed_rows()
        self._noted += rows
        self.recorder.note(now, events, plan, rows)
        self.journal.write(self.recorder, self._number)
        return plan

    def changed_rows(self) -> list[Row]:
        noted, self._noted = self._noted, []
        return noted

    def finish(self, now: float) -> None:
        """The controller is stopped in order."""
        self.recorder.finish(now)
        self.journal.write(self.recorder, self._number)


def recorded() -> Journal:
    """A new journal for the cores that are made from now on."""
    RecordedCore.journal = Journal()
    return RecordedCore.journal
