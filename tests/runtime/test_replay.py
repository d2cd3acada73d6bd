"""A journal is decided again as it was, or the report says exactly where not, and why."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.actions import Plan, Reason
from elasticd.core.decide import Core
from elasticd.core.events import DemandSampled, Event, ScaleHeld
from elasticd.core.fleet import Row
from elasticd.runtime.core_version import core_version
from elasticd.runtime.journal_quiet import Gap, Memory, Pack, read_quiet
from elasticd.runtime.ledger import JournalEntry
from elasticd.runtime.replay import Rules, replay
from elasticd.runtime.replay_report import Report
from tests.core.world import World, model
from tests.runtime.journals import Journal, RecordedCore, recorded


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Two lives: a fleet comes up, is scaled, loses a node; the second one finds it."""
    monkeypatch.setattr("tests.core.world.Core", RecordedCore)
    journal = recorded()
    world = World([model(max_replicas=3)])
    world.start()
    world.settle(world.demand(), rounds=6)
    world.step(ScaleHeld("m", 2, 30.0, "test"))
    world.settle(world.demand(2, 5), rounds=20)
    for _ in range(30):
        world.now += 0.5
        world.step(world.demand(0, 1))
    finish(world)
    world.restart()
    world.settle(world.demand(), rounds=5)
    world.kill_node(sorted(world.phases())[0])
    world.settle(world.demand(), rounds=90)
    finish(world)
    return journal


def finish(world: World) -> None:
    core: Any = world.core
    core.finish(world.now)


def otherwise(report: Report) -> list[int]:
    return [life.differences for life in report.lives]


def part(journal: Journal, epoch: int) -> list[JournalEntry]:
    return [entry for entry in journal.entries if entry.epoch == epoch]


def test_what_was_recorded_is_decided_again_step_by_step(journal: Journal) -> None:
    reports: list[int] = []
    report = replay(journal.entries, progress=lambda so_far: reports.append(so_far.entries))
    assert (report.differences, report.skipped, otherwise(report)) == ([], [], [0, 0])
    assert report.steps == sum(life.steps for life in report.lives) > 90
    assert 10 < sum(life.decisions for life in report.lives) < report.steps - 20
    assert (report.lives[0].since, report.lives[0].until) == (1000.0, 1041.0)
    assert reports == list(range(1, len(journal.entries) + 1))


def test_one_constant_of_the_core_that_changed_is_reported_where_it_matters(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.core.apply_cluster.ABSENT_FOR", 9.0)
    report = replay(journal.entries)
    assert otherwise(report)[0] == 0
    assert otherwise(report)[1] == report.unequal > 0
    first = report.differences[0]
    assert (first.epoch, first.at) == (2, 1047.0)  # where the node is lost
    assert first.recorded["wake_at"] == 1050.0
    assert first.replayed["wake_at"] == 1056.0


def test_all_differences_are_counted_and_the_first_ones_kept(journal: Journal) -> None:
    class Gloomy(Core):
        def step(self, now: float, events: Sequence[Event]) -> Plan:
            plan = super().step(now, events)
            return replace(plan, reasons=(*plan.reasons, Reason("fleet", "sigh")))

    report = replay(journal.entries, Rules(most=3, make_core=Gloomy))
    assert report.unequal == report.steps
    assert [found.at for found in report.differences] == [1000.0, 1001.0, 1002.0]


class Changed(Core):
    """Decides as the core does but for one thing, at one moment."""

    at = 0.0

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        plan = super().step(now, events)
        if now == self.at:
            return self.other(plan)
        return plan

    def other(self, plan: Plan) -> Plan:
        return replace(plan, reasons=(*plan.reasons, Reason("fleet", "a whim")))


def changed(entry_at: float, other: Any = None) -> type[Core]:
    return type("Other", (Changed,), {"at": entry_at, **({"other": other} if other else {})})


def test_one_word_that_differs_is_found_also_in_a_step_between_the_entries(
    journal: Journal,
) -> None:
    quiet = 1032.5  # a sample that changed nothing
    assert quiet not in {entry.at for entry in journal.entries}
    report = replay(journal.entries, Rules(make_core=changed(quiet)))
    [found] = report.differences
    assert (found.at, found.epoch, found.quiet, found.fault) == (quiet, 1, True, "")
    assert found.events == (DemandSampled("m", 0, 1, 1, 0),)
    assert found.replayed["reasons"] == [{"subject": "fleet", "text": "a whim"}]
    assert otherwise(report) == [1, 0]


def test_the_time_to_wake_counts_where_it_was_recorded(journal: Journal) -> None:
    entry = next(entry for entry in journal.entries if entry.plan["reasons"])

    def later(self: Changed, plan: Plan) -> Plan:
        return replace(plan, wake_at=self.at + 99.0)

    [found] = replay(journal.entries, Rules(make_core=changed(entry.at, later))).differences
    assert found.seq == entry.seq
    assert found.replayed["wake_at"] == entry.at + 99.0 != found.recorded["wake_at"]


def test_a_core_that_fails_is_a_difference_and_the_next_life_is_still_replayed(
    journal: Journal,
) -> None:
    def fail(self: Changed, plan: Plan) -> Plan:
        raise ZeroDivisionError("whatever")

    report = replay(journal.entries, Rules(make_core=changed(1032.5, fail)))
    [found] = report.differences
    assert (found.at, found.fault) == (1032.5, "ZeroDivisionError('whatever')")
    assert otherwise(report) == [1, 0]
    assert [skipped.epoch for skipped in report.skipped] == [1]
    assert not report.damaged


def test_a_core_that_cannot_begin_is_told(journal: Journal) -> None:
    def none(ledger_id: str, epoch: int, rows: Sequence[Row]) -> Core:
        raise KeyError("phase")

    report = replay(journal.entries, Rules(make_core=none))
    assert report.lives == []
    assert "the core cannot begin from the rows: KeyError('phase')" in report.skipped[0].why


def test_another_core_is_replayed_only_when_asked_and_its_differences_are_counted(
    journal: Journal,
) -> None:
    older = [replace(entry, core="0.1+abc") for entry in part(journal, 1)]
    report = replay([*older, *part(journal, 2)])
    assert [life.epoch for life in report.lives] == [2]
    [skipped] = report.skipped
    assert (skipped.first_seq, skipped.last_seq) == (older[0].seq, older[-1].seq)
    assert skipped.why == "decided by another core: 0.1+abc"
    assert not report.damaged
    report = replay([*older, *part(journal, 2)], Rules(anyway=True))
    assert [life.core for life in report.lives] == ["0.1+abc", core_version()]
    assert report.unequal == 0


def test_a_journal_that_was_trimmed_is_replayed_from_the_next_beginning(journal: Journal) -> None:
    report = replay(journal.entries[3:])
    assert [life.epoch for life in report.lives] == [2]
    [skipped] = report.skipped
    assert (skipped.epoch, skipped.first_seq) == (1, 4)
    assert "trimmed" in skipped.why
    assert not report.damaged


def test_a_journal_of_an_earlier_elasticd_is_said_to_be_one(journal: Journal) -> None:
    earlier = [replace(entry, core="", quiet=b"") for entry in part(journal, 1)]
    [skipped] = replay(earlier).skipped
    assert "did not record what a replay needs" in skipped.why


def test_what_the_disk_did_not_take_is_a_gap_and_no_difference(journal: Journal) -> None:
    first = part(journal, 1)
    lost = Pack()
    lost.gap(Gap(first[3].at, first[5].at))
    entries = [*first[:3], replace(first[6], quiet=lost.take(), seq=first[3].seq)]
    entries += [replace(entry, seq=entry.seq - 3) for entry in [*first[7:], *part(journal, 2)]]
    report = replay(entries)
    assert (report.unequal, len(report.lives)) == (0, 2)
    [skipped] = report.skipped
    assert (skipped.epoch, skipped.first_seq, skipped.last_seq) == (1, 4, len(first) - 3)
    assert "the disk took none" in skipped.why
    assert not report.damaged


@pytest.mark.parametrize("how", ["told", "quiet", "event", "missing"])
def test_damage_is_told_and_skipped_until_the_next_beginning(journal: Journal, how: str) -> None:
    entries = list(journal.entries)
    bad = entries[4]
    if how == "told":
        entries[4] = JournalEntry(0.0, (), {}, bad.seq, damaged=True)
    elif how == "quiet":
        entries[4] = replace(bad, quiet=b"not packed")
    elif how == "event":
        entries[4] = replace(bad, events=({"type": "Unheard"},))
    else:
        del entries[4]
    report = replay(entries)
    assert (report.unequal, report.damaged) == (0, True)
    assert [life.epoch for life in report.lives] == [1, 2]
    [skipped] = report.skipped
    assert (skipped.epoch, skipped.first_seq) == (1, bad.seq)
    assert skipped.last_seq == part(journal, 1)[-1].seq


def test_a_damaged_beginning_costs_its_life_only(journal: Journal) -> None:
    entries = list(journal.entries)
    where = len(part(journal, 1))
    entries[where] = JournalEntry(0.0, (), {}, entries[where].seq, damaged=True)
    report = replay(entries)
    assert [life.epoch for life in report.lives] == [1]
    assert [part.damaged for part in report.skipped] == [True, True]


def test_whatever_is_damaged_no_difference_is_made_of_it(journal: Journal) -> None:
    """Any entries lost or damaged, in any number: only what is whole is compared."""
    dice = random.Random(7)
    for _ in range(100):
        kept = [entry for entry in journal.entries if dice.random() > 0.1]
        for index, entry in enumerate(kept):
            if entry.quiet and dice.random() < 0.1:
                cut = dice.randrange(len(entry.quiet))
                kept[index] = replace(entry, quiet=entry.quiet[:cut] or b"\0")
        assert replay(kept).unequal == 0


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Journal:
    """The same journal, in which it is written every ten seconds what the core remembers."""
    monkeypatch.setattr("elasticd.runtime.recorder.MEMORY_PERIOD", 10.0)
    journal: Journal = request.getfixturevalue("journal")
    return journal


def memories(entries: Sequence[JournalEntry]) -> list[int]:
    """Where in a journal the core's memory is."""
    return [
        entry.seq
        for entry in entries
        if any(isinstance(line, Memory) for line in read_quiet(entry.quiet))
    ]


def test_a_life_whose_beginning_was_trimmed_is_replayed_from_what_its_core_remembered(
    remembering: Journal,
) -> None:
    first, *_ = memories(remembering.entries)
    assert first > 3
    report = replay(remembering.entries[2:])
    assert [(life.epoch, life.whole) for life in report.lives] == [(1, False), (2, True)]
    assert report.unequal == 0
    assert [(part.first_seq, part.last_seq) for part in report.skipped] == [(3, first - 1)]
    assert report.lives[0].steps > 10
    whole = replay(remembering.entries)
    assert [(life.epoch, life.whole) for life in whole.lives] == [(1, True), (2, True)]
    assert (whole.unequal, whole.skipped) == (0, [])


def test_after_damage_it_goes_on_from_what_the_core_remembered_next(remembering: Journal) -> None:
    entries = list(remembering.entries)
    resumed, *_ = memories(entries)
    del entries[3]
    report = replay(entries)
    assert [(life.epoch, life.whole) for life in report.lives][:2] == [(1, True), (1, False)]
    assert (report.unequal, report.damaged) == (0, True)
    assert [(part.first_seq, part.last_seq) for part in report.skipped] == [(4, resumed - 1)]


def test_another_core_goes_on_from_no_memory_that_is_not_its_own(remembering: Journal) -> None:
    older = [replace(entry, core="0.1+abc") for entry in remembering.entries[2:]]
    report = replay(older, Rules(anyway=True))
    assert [(life.epoch, life.whole) for life in report.lives] == [(2, True)]


def test_an_empty_journal_is_an_empty_report() -> None:
    assert replay([]) == Report(core_version())
