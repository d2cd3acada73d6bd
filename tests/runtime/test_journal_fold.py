"""What the journal leaves out can be put together again, exactly, and saves what it should."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.codec import from_json
from elasticd.core.events import (
    ClusterObserved,
    Event,
    InstancesListed,
    LoadSampled,
    NodeSeen,
    OfferingsListed,
    ReplicaLoad,
    ReplicaSeen,
)
from elasticd.runtime.journal_fold import Folder, Unfolder
from elasticd.runtime.ledger import JournalEntry
from tests.runtime.fakes import INSTANCE, OFFERING


def written(events: Sequence[Event]) -> list[JournalEntry]:
    folder = Folder()
    return [
        JournalEntry(0.0, tuple(json.loads(json.dumps([folder.fold(event)]))), {}, seq, 1)
        for seq, event in enumerate(events, 1)
    ]


def read(entries: Sequence[JournalEntry]) -> list[Event]:
    unfolder = Unfolder()
    return [from_json(event) for entry in entries for event in unfolder.unfold(entry).events]


def fleet(replicas: int, **of_first: object) -> ClusterObserved:
    nodes = tuple(NodeSeen(f"n-{n}", True, 8, "up") for n in range(replicas // 3))
    seen = [
        ReplicaSeen(f"r-{n}", 1, f"n-{n // 3}", "ready", f"http://10.0.0.1:{20000 + n}")
        for n in range(replicas)
    ]
    seen[0] = replace(seen[0], **of_first)  # type: ignore[arg-type]
    return ClusterObserved(nodes, tuple(seen), complete=True)


_ITEMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6)


@given(st.lists(st.tuples(st.sampled_from("ab"), _ITEMS), max_size=12))
def test_any_sequence_of_lists_is_read_as_it_was(
    lists: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    """Also with items in another order, and with two of one name."""
    events: list[Event] = []
    for pool, items in lists:
        events += [
            InstancesListed(
                pool,
                tuple(replace(INSTANCE, instance_id=f"i-{n}", address=str(v)) for n, v in items),
                took=0.5,
            ),
            OfferingsListed(
                pool, tuple(replace(OFFERING, zone=str(n), price_micros=v) for n, v in items)
            ),
            LoadSampled(tuple(ReplicaLoad(f"r-{n}", v) for n, v in items)),
            ClusterObserved(
                tuple(NodeSeen(f"n-{n}", None, v) for n, v in items),
                tuple(ReplicaSeen(f"r-{n}", v, "n", "ready") for n, v in items),
                complete=bool(items),
                detail=pool,
            ),
        ]
    assert read(written(events)) == events


def test_one_change_in_a_large_fleet_costs_little() -> None:
    events = [fleet(3000), *(fleet(3000, stalled_for=float(n)) for n in range(1, 100))]
    sizes = [len(json.dumps(entry.events)) for entry in written(events)]
    assert sizes[0] > 500_000
    assert max(sizes[1:]) < 1_000


def test_a_list_is_whole_again_before_its_differences_outweigh_it() -> None:
    events = [fleet(30, stalled_for=float(n)) for n in range(500)]
    kinds = [entry.events[0]["type"] for entry in written(events)]
    gaps = [n for n, kind in enumerate(kinds) if kind == "ClusterObserved"]
    assert len(gaps) > 3
    assert all(second - first < 100 for first, second in itertools.pairwise(gaps))


def test_a_journal_whose_beginning_is_gone_is_read_from_the_next_whole_list_on() -> None:
    events = [fleet(30, stalled_for=float(n)) for n in range(300)]
    entries = written(events)[5:]
    unfolder = Unfolder()
    read_back = [from_json(e) for entry in entries for e in unfolder.unfold(entry).events]
    assert unfolder.missing > 0
    assert read_back == events[-len(read_back) :]
    assert len(read_back) == len(entries) - unfolder.missing


def test_entries_that_were_skipped_are_noticed() -> None:
    entries = written([fleet(30, stalled_for=float(n)) for n in range(20)])
    unfolder = Unfolder()
    for entry in (*entries[:5], *entries[9:]):
        unfolder.unfold(entry)
    assert unfolder.missing == len(entries) - 9


def test_the_next_life_begins_whole_and_rests_on_nothing() -> None:
    first, second = written([fleet(3), fleet(3)]), written([fleet(6), fleet(6, error="x")])
    later = [replace(e, epoch=2, seq=e.seq + 2) for e in second]
    assert read([*first, *later]) == [fleet(3), fleet(3), fleet(6), fleet(6, error="x")]
