"""What the journal leaves out can be put together again, exactly, and saves what it should."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    DemandSampled,
    DownRequested,
    Event,
    InstancesListed,
    ListFailed,
    LoadSampled,
    NodeSeen,
    OfferingsListed,
    ReplicaLoad,
    ReplicaSeen,
)
from elasticd.runtime.journal_fold import Folder, Unfolder, Unreadable
from tests.runtime.fakes import INSTANCE, OFFERING


def written(events: Sequence[Event], *, brief: bool = False) -> list[Any]:
    folder = Folder()
    fold = folder.brief if brief else folder.fold
    return [json.loads(json.dumps(fold(event))) for event in events]


def read(items: Sequence[Any]) -> list[Event]:
    unfolder = Unfolder()
    return [unfolder.read(item) for item in items]


def fleet(replicas: int, **of_first: object) -> ClusterObserved:
    nodes = tuple(NodeSeen(f"n-{n}", True, 8, "up") for n in range(replicas // 3))
    seen = [
        ReplicaSeen(f"r-{n}", 1, f"n-{n // 3}", "ready", f"http://10.0.0.1:{20000 + n}")
        for n in range(replicas)
    ]
    seen[0] = replace(seen[0], **of_first)  # type: ignore[arg-type]
    return ClusterObserved(nodes, tuple(seen), complete=True)


_ITEMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6)


def told(pool: str, items: list[tuple[int, int]]) -> list[Event]:
    """One of each that repeats itself, with these items where it has any."""
    return [
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
            tuple(NodeSeen(f"n-{n}", None, v, log_tail=("a", str(v))) for n, v in items),
            tuple(ReplicaSeen(f"r-{n}", v, "n", "ready") for n, v in items),
            complete=bool(items),
            detail=pool,
        ),
        DemandSampled(pool, len(items), *(items[0] if items else (0, 0)), 3),
        ClusterUnreachable(str(items)),
        ListFailed(pool, "instances", "Unavailable", str(len(items))),
        DownRequested(pool),
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), _ITEMS, st.lists(st.booleans(), min_size=8, max_size=8)),
        max_size=12,
    )
)
def test_any_sequence_of_facts_is_read_as_it_was(
    rounds: list[tuple[str, list[tuple[int, int]], list[bool]]],
) -> None:
    """Also with items in another order, with two of one name, and in both forms by turns."""
    folder, events, items = Folder(), [], []
    for pool, listed, briefly in rounds:
        for event, short in zip(told(pool, listed), briefly, strict=True):
            events.append(event)
            items.append((folder.brief if short else folder.fold)(event))
    assert read(json.loads(json.dumps(items))) == events


def test_one_change_in_a_large_fleet_costs_little() -> None:
    events = [fleet(3000), *(fleet(3000, stalled_for=float(n)) for n in range(1, 100))]
    sizes = [len(json.dumps(item)) for item in written(events)]
    assert sizes[0] > 500_000
    assert max(sizes[1:]) < 1_000


def test_a_repetition_among_quiet_steps_is_one_number_and_a_sample_its_figures() -> None:
    loads = [LoadSampled((ReplicaLoad("r", n), ReplicaLoad("s", 1))) for n in (0, 2)]
    events: list[Event] = [
        fleet(3),
        DemandSampled("m", 0, 0, 0, 0),
        loads[0],
        fleet(3),
        DemandSampled("m", 0, 0, 0, 0),
        DemandSampled("m", 1, 2, 3, 4),
        loads[1],
    ]
    items = written(events, brief=True)
    assert items[3:] == [0, 1, [1, 1, 2, 3, 4], [2, 2, 1]]
    assert read(items) == events


def test_a_repetition_gives_the_very_same_event_so_that_reading_is_quick() -> None:
    first, second = read(written([fleet(3), fleet(3)], brief=True))
    assert first is second


@pytest.mark.parametrize(
    "item",
    [
        7,
        -1,
        [7, 1],
        [0, 1],
        None,
        {},
        {"type": "Unheard"},
        {"type": "Changed", "of": "InstancesListed", "lists": {}, "rest": {"pool": "x"}},
        {
            "type": "Changed",
            "of": "ClusterObserved",
            "lists": {"nodes": {"put": [], "gone": ["never there"]}},
            "rest": {"complete": True, "detail": ""},
        },
    ],
)
def test_what_rests_on_nothing_is_unreadable_and_never_guessed(item: Any) -> None:
    unfolder = Unfolder()
    unfolder.read(written([fleet(3)])[0])
    with pytest.raises(Unreadable):
        unfolder.read(item)


def test_after_something_was_lost_all_begins_anew() -> None:
    folder = Folder()
    folder.fold(fleet(3))
    folder.brief(DemandSampled("m", 0, 0, 0, 0))
    folder.forget()
    again = [folder.brief(DemandSampled("m", 0, 0, 0, 0)), folder.brief(fleet(3))]
    assert read(json.loads(json.dumps(again))) == [DemandSampled("m", 0, 0, 0, 0), fleet(3)]
