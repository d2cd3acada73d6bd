"""The journal holds what was decided and why, and does not drown in repetition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticd.core.actions import Plan, PublishTable, Reason
from elasticd.core.codec import from_json
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
from elasticd.runtime.journal_fold import Unfolder
from elasticd.runtime.recorder import Recorder
from tests.runtime.fakes import INSTANCE, LAUNCH, NOTHING, OFFERING, table

DECIDED = Plan((LAUNCH, PublishTable(table(1))), (Reason("model:tiny", "wants 1"),), 12.5)
OBSERVED = ClusterObserved((), (), complete=True)
LISTED = InstancesListed("lab", (INSTANCE,), took=0.25)


def events_of(recorder: Recorder) -> list[list[Event]]:
    unfolder = Unfolder()
    entries = [
        unfolder.unfold(replace(entry, seq=seq)) for seq, entry in enumerate(recorder.entries)
    ]
    return [[from_json(event) for event in entry.events] for entry in entries]


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
    sample = DemandSampled("tiny", 1, 2, 3, 4)
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
        recorder.note(float(at), [sample, LoadSampled(()), *again], NOTHING, [])
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


def test_samples_left_out_are_folded_into_the_next_entry() -> None:
    recorder = noted(
        ([DemandSampled("a", 1, 1, 9, 2), DemandSampled("b", 0, 0, 0, 1)],),
        ([DemandSampled("a", 5, 3, 8, 4), LoadSampled((ReplicaLoad("r", 1),))],),
        ([DemandSampled("a", 6, 4, 7, 1), LoadSampled((ReplicaLoad("r", 2),))], DECIDED),
        ([], DECIDED),
    )
    assert events_of(recorder) == [
        [
            DemandSampled("a", 6, 4, 9, 7),
            DemandSampled("b", 0, 0, 0, 1),
            LoadSampled((ReplicaLoad("r", 2),)),
        ],
        [],
    ]


def test_rows_wait_in_their_latest_form_until_they_are_written() -> None:
    first, second = Row("node", "a", {"n": 1}), Row("node", "a", {"n": 2})
    recorder = noted(([], NOTHING, [first]), ([], NOTHING, [second, Row("node", "b", None)]))
    assert recorder.rows == [second, Row("node", "b", None)]
    recorder.written()
    assert not recorder.pending


def test_while_nothing_can_be_written_entries_are_bounded_and_rows_are_not() -> None:
    recorder = Recorder()
    for n in range(2500):
        recorder.note(float(n), [LISTED], DECIDED, [Row("node", str(n), {})])
        assert len(recorder.entries) <= 1000
    kept = recorder.entries
    assert kept[-1].at == 2499.0
    assert len(recorder.rows) == 2500
    # What is kept does not rest on what was dropped.
    assert kept[0].events[0]["type"] == "InstancesListed"
    assert kept[1].events[0]["type"] == "Changed"


def test_samples_wait_for_a_decision_and_are_not_written_with_mere_news() -> None:
    sample = DemandSampled("a", 1, 1, 9, 2)
    recorder = noted(([sample],), ([OBSERVED],), ([], DECIDED))
    assert events_of(recorder) == [[OBSERVED], [sample]]


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
