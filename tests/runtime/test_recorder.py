"""The journal holds what was decided and why, and does not drown in repetition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from structlog.testing import capture_logs

from elasticd.core.actions import Plan, PublishTable, Reason
from elasticd.core.codec import from_json
from elasticd.core.decide import Core
from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    DemandSampled,
    Event,
    InstancesListed,
    ListFailed,
    LoadSampled,
    NodeSeen,
    OfferingsListed,
    ReplicaLoad,
    ReplicaSeen,
)
from elasticd.core.fleet import Row
from elasticd.ops.journal_story import tell
from elasticd.runtime.core_version import core_version
from elasticd.runtime.journal_fold import Unfolder
from elasticd.runtime.journal_quiet import Began, Gap, Line, Memory, QuietStep, read_quiet
from elasticd.runtime.ledger import JournalEntry, Restored
from elasticd.runtime.recorder import MEMORY_PERIOD, QUIET_AGE, QUIET_SIZE, Recorder
from tests.runtime.fakes import INSTANCE, LAUNCH, NOTHING, OFFERING, table

DECIDED = Plan((LAUNCH, PublishTable(table(1))), (Reason("model:tiny", "wants 1"),), 12.5)
OBSERVED = ClusterObserved((), (), complete=True)
LISTED = InstancesListed("lab", (INSTANCE,), took=0.25)


SAMPLE = DemandSampled("tiny", 1, 2, 3, 4)


def events_of(recorder: Recorder) -> list[list[Event]]:
    """Those of each entry that is a step."""
    return [events for at, events, quiet in steps_of(recorder.entries) if not quiet]


def steps_of(entries: list[JournalEntry]) -> Iterator[tuple[float, list[Event], bool]]:
    """Every step that was recorded: its time, its events, and whether it was a quiet one."""
    unfolder = Unfolder()
    for entry in entries:
        for line in read_quiet(entry.quiet):
            if isinstance(line, QuietStep):
                yield line.at, [unfolder.read(item) for item in line.events], True
        if entry.plan.get("step", True):
            yield entry.at, [unfolder.read(item) for item in entry.events], False


def marks_of(entry: JournalEntry) -> list[Line]:
    return [line for line in read_quiet(entry.quiet) if not isinstance(line, QuietStep)]


def noted(*steps: tuple[Any, ...]) -> Recorder:
    recorder = Recorder()
    for at, step in enumerate(steps):
        events, plan, rows = (*step, NOTHING, [])[:3] if len(step) == 1 else (*step, [])[:3]
        recorder.note(float(at), events, plan, rows)
    return recorder


def test_a_decision_is_written_with_what_it_followed_from() -> None:
    recorder = noted(([LISTED], DECIDED))
    [entry] = recorder.entries
    assert events_of(recorder) == [[LISTED]]
    assert [from_json(action) for action in entry.plan["actions"]] == list(DECIDED.actions)
    assert entry.plan["reasons"] == [{"subject": "model:tiny", "text": "wants 1"}]
    assert entry.plan["wake_at"] == 12.5


def test_samples_and_repetition_alone_are_not_written() -> None:
    repeated: list[Event] = [
        OBSERVED,
        LISTED,
        OfferingsListed("lab", (OFFERING,)),
        ListFailed("third", "instances", "Unavailable", "503"),
        ListFailed("lab", "notices", "Unavailable", "503"),
        InstancesListed("other", ()),
    ]
    recorder = noted((repeated,))
    assert len(recorder.entries) == 1
    recorder.written()
    for at in range(100):
        again = [
            InstancesListed("lab", (INSTANCE,), took=at) if e is LISTED else e for e in repeated
        ]
        recorder.note(float(at), [SAMPLE, LoadSampled(()), *again], NOTHING, [])
    assert not recorder.pending


def test_a_change_in_what_repeats_is_written() -> None:
    steps: list[Event] = [
        OBSERVED,
        OBSERVED,
        ClusterUnreachable("away"),
        ClusterUnreachable("away"),
        OBSERVED,
        InstancesListed("lab", (INSTANCE,)),
        InstancesListed("lab", ()),
        InstancesListed("lab", ()),
        ListFailed("lab", "instances", "Unavailable", "503"),
        InstancesListed("lab", ()),
    ]
    recorder = noted(*(([event],) for event in steps))
    assert events_of(recorder) == [[steps[n]] for n in (0, 2, 4, 5, 6, 8, 9)]


def test_repetition_that_changed_a_row_or_a_decision_is_written() -> None:
    row = Row("node", "node-1", {"unseen_lists": 2})
    recorder = noted(([LISTED],), ([LISTED], NOTHING, [row]), ([LISTED], DECIDED))
    assert events_of(recorder) == [[LISTED]] * 3


def test_every_step_is_recorded_quiet_ones_with_the_next_entry() -> None:
    steps: list[tuple[float, list[Event], Plan]] = [
        (0.125, [LISTED, SAMPLE], DECIDED),
        (1.1, [DemandSampled("tiny", 1, 1, 9, 2), LoadSampled((ReplicaLoad("r", 1),))], NOTHING),
        (2.2, [], NOTHING),
        (3.3, [InstancesListed("lab", (INSTANCE,), took=9.0)], NOTHING),
        (4.4, [DemandSampled("tiny", 6, 4, 7, 1), LoadSampled((ReplicaLoad("r", 2),))], DECIDED),
        (5.5, [LISTED], NOTHING),
        (6.6, [OBSERVED], NOTHING),
    ]
    recorder = Recorder()
    for at, events, plan in steps:
        recorder.note(at, events, plan, [])
    assert list(steps_of(recorder.entries)) == [
        (at, events, at in (1.1, 2.2, 3.3, 5.5)) for at, events, _ in steps
    ]
    assert len(recorder.entries) == 3


def test_quiet_steps_are_written_after_a_while_and_tell_of_no_step() -> None:
    recorder = Recorder()
    times = [float(n) for n in range(int(QUIET_AGE) + 10)]
    for at in times:
        recorder.note(at, [SAMPLE], NOTHING, [])
    [entry] = recorder.entries
    assert (entry.at, entry.events, entry.plan["step"]) == (QUIET_AGE, (), False)
    assert tell(entry) is None  # to people
    assert [at for at, _, _ in steps_of([entry])] == times[: int(QUIET_AGE) + 1]
    recorder.finish(times[-1])
    assert [at for at, _, _ in steps_of(recorder.entries)] == times


def test_quiet_steps_in_memory_are_bounded_under_load() -> None:
    recorder = Recorder()
    largest = 0
    for n in range(3000):
        loads = tuple(ReplicaLoad(f"r-{k}", n * k % 50) for k in range(100))
        recorder.note(n / 2, [LoadSampled(loads)], NOTHING, [])
        largest = max(largest, recorder.quiet_size)
    assert QUIET_SIZE / 2 < largest < QUIET_SIZE + 10_000
    assert len(recorder.entries) > 3


def test_a_stop_with_nothing_quiet_writes_nothing() -> None:
    recorder = noted(([LISTED], DECIDED))
    recorder.finish(9.0)
    assert len(recorder.entries) == 1


def test_a_life_begins_with_what_was_restored_and_every_entry_names_its_core() -> None:
    rows = (Row("node", "a", {"n": 1}), Row("down", "fleet", {"by": "x"}))
    recorder = Recorder()
    recorder.begin(Restored("ledger", 7, 3.0, rows))
    recorder.note(4.0, [LISTED], DECIDED, [])
    recorder.note(5.0, [LISTED], DECIDED, [])
    first, second = recorder.entries
    assert marks_of(first) == [Began("ledger", 7, rows)]
    assert marks_of(second) == []
    assert {first.core, second.core} == {core_version()}


def test_rows_wait_in_their_latest_form_until_they_are_written() -> None:
    first, second = Row("node", "a", {"n": 1}), Row("node", "a", {"n": 2})
    recorder = noted(([], NOTHING, [first]), ([], NOTHING, [second, Row("node", "b", None)]))
    assert recorder.rows == [second, Row("node", "b", None)]
    recorder.written()
    assert not recorder.pending


def test_what_the_core_remembers_is_written_now_and_then_and_all_begins_anew() -> None:
    recorder = Recorder()
    core = Core("ledger", 1)
    recorder.begin(Restored("ledger", 1, 0.0, ()), core)
    for at in (0.0, MEMORY_PERIOD - 1.0, MEMORY_PERIOD, MEMORY_PERIOD + 1.0):
        recorder.note(at, [LISTED], DECIDED, [])
    recorder.note(MEMORY_PERIOD + 2.0, [LISTED], DECIDED, [])
    assert [[type(line) for line in marks_of(entry)] for entry in recorder.entries] == [
        [Began],
        [],
        [],
        [Memory],
        [],
    ]
    kinds = [entry.events[0]["type"] for entry in recorder.entries]
    assert kinds == ["InstancesListed", "Changed", "Changed", "InstancesListed", "Changed"]


def test_a_core_that_cannot_be_remembered_is_told_once_and_harms_nothing() -> None:
    recorder = Recorder()
    recorder.begin(Restored("ledger", 1, 0.0, ()), object())
    with capture_logs() as logs:
        for n in range(4):
            recorder.note(n * MEMORY_PERIOD, [LISTED], DECIDED, [])
    assert [log["event"] for log in logs] == ["core_not_remembered"]
    assert len(recorder.entries) == 4


def test_after_a_gap_the_core_is_remembered_at_once() -> None:
    recorder = Recorder()
    recorder.begin(Restored("ledger", 1, 0.0, ()), Core("ledger", 1))
    for n in range(1500):
        recorder.note(float(n), [LISTED], DECIDED, [])
    assert [type(line) for line in marks_of(recorder.entries[0])] == [Gap, Memory]


def test_while_nothing_can_be_written_entries_are_bounded_and_rows_are_not() -> None:
    recorder = Recorder()
    for n in range(2500):
        recorder.note(float(n), [LISTED], DECIDED, [Row("node", str(n), {})])
        assert len(recorder.entries) <= 1000
    kept = recorder.entries
    assert kept[-1].at == 2499.0
    assert len(recorder.rows) == 2500
    # What is kept does not rest on what was dropped, and says that something was.
    assert kept[0].events[0]["type"] == "InstancesListed"
    assert kept[1].events[0]["type"] == "Changed"
    assert marks_of(kept[0]) == [Gap(0.0, 2001.0)]
    assert [marks_of(entry) for entry in kept[1:]] == [[]] * (len(kept) - 1)


def test_a_gap_ends_with_what_was_written() -> None:
    recorder = Recorder()
    for n in range(1500):
        recorder.note(float(n), [LISTED], DECIDED, [])
    recorder.written()
    for n in range(1500, 3000):
        recorder.note(float(n), [LISTED], DECIDED, [])
    assert marks_of(recorder.entries[0]) == [Gap(1500.0, 2500.0)]


def test_progress_and_the_ends_of_logs_are_no_news() -> None:
    def seen(**more: Any) -> ClusterObserved:
        replica = ReplicaSeen("r", 1, "n", "starting", **more)
        return ClusterObserved((NodeSeen("n", True, 1, "up"),), (replica,), complete=True)

    recorder = noted(
        ([seen()],),
        ([seen(load_phase="weights 10 %")],),
        ([seen(stalled_for=3.0, log_tail=("a",))],),
        ([seen(error="exit 1")],),
    )
    assert events_of(recorder) == [[seen()], [seen(error="exit 1")]]
