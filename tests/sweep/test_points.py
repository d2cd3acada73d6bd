"""What a sweep kills at, and what it calls a broken promise."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalEntry
from elasticd_providers.fake.identity import Identity
from tests.sweep.boundaries import KINDS, OTHER, Contents, Crossing
from tests.sweep.playing import shares
from tests.sweep.points import Point, missing_kinds, points_of, sample
from tests.sweep.verdict import judge

CLUSTER = "swept"


def crossed(*boundaries: tuple[str, ...]) -> list[Crossing]:
    counts: dict[str, int] = {}
    found = []
    for number, kinds in enumerate(boundaries, 1):
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
        found.append(Crossing(number, {kind: counts[kind] for kind in kinds}, False))
    return found


def test_every_boundary_is_a_point_and_goes_by_its_rarest_kind() -> None:
    common, rare = "before commit: replica phase", "before commit: down"
    points = points_of("life", crossed((common,), (common, rare), (common,)))
    assert points == [Point("life", common, 1), Point("life", rare, 1), Point("life", common, 3)]


def test_lists_with_nothing_between_them_are_one_point() -> None:
    listed, commit = "instances: not sent", "before commit: spend"
    points = points_of("life", crossed((listed,), (listed,), (commit,), (listed,)))
    assert [(p.kind, p.nth) for p in points] == [(listed, 1), (commit, 1), (listed, 3)]


@pytest.mark.parametrize("seed", range(10))
def test_a_sample_has_every_kind_and_the_whole_has_every_point(seed: int) -> None:
    points = [Point("life", kind, nth) for kind in KINDS for nth in (1, 2, 3)]
    some = sample(points, 70, random.Random(seed))
    assert len(some) == 70
    assert {point.kind for point in some} == set(KINDS)
    every = sample(points, None, random.Random(seed))
    assert sorted((p.kind, p.nth) for p in every) == sorted((p.kind, p.nth) for p in points)
    assert any(point.second for point in every)


def test_a_kind_at_which_nothing_died_is_missed() -> None:
    assert missing_kinds(dict.fromkeys(KINDS, 1)) == []
    assert missing_kinds(dict.fromkeys(KINDS[1:], 1)) == [KINDS[0]]


@pytest.mark.parametrize("lives", [1, 3, 4])
def test_the_short_form_shares_every_kind_out(lives: int) -> None:
    assert sorted(kind for share in shares(lives) for kind in share) == sorted(KINDS)


def test_a_commit_is_named_by_what_is_new_in_it() -> None:
    contents = Contents()
    contents.learn([Row("node", "n-1", {"phase": "ready"})])
    same = Row("node", "n-1", {"phase": "ready"})
    assert contents.of([same], []) == [OTHER]
    moved = Row("node", "n-1", {"phase": "draining"})
    launch = JournalEntry(
        1.0, ({"type": "DownRequested"},), {"actions": [{"type": "LaunchNode"}], "reasons": []}
    )
    assert contents.of([moved], [launch]) == ["launch intent", "node draining", "down"]
    reload = JournalEntry(2.0, ({"type": "Configured", "changed": ["models"]},), {"actions": []})
    assert contents.of([moved], [reload]) == ["reload"]


def machine(key: str, node_id: str, state: str = "ended", **more: Any) -> dict[str, Any]:
    name = Identity(CLUSTER, "pool", "ledger", node_id).name
    return {"id": key, "name": name, "tags": {}, "state": state, "stop_asked_at": None, **more}


def truth(*machines: dict[str, Any], calls: tuple[Mapping[str, Any], ...] = ()) -> dict[str, Any]:
    return {"machines": list(machines), "calls": {"recent": list(calls)}}


def test_a_machine_that_is_left_or_still_to_come_is_a_leak() -> None:
    left = truth(machine("m-1", "n-1"), machine("m-2", "n-2", "active"))
    assert judge(left, CLUSTER, set()).leaked == ["m-2"]
    to_come = truth(machine("m-1", "n-1", "ordered"))
    assert judge(to_come, CLUSTER, set()).leaked == ["m-1"]


def test_two_machines_for_one_node_are_launched_twice_unless_the_cloud_doubled_them() -> None:
    two = (machine("m-1", "n-1"), machine("m-2", "n-1"))
    assert judge(truth(*two), CLUSTER, set()).launched_twice == [two[0]["name"]]
    doubled = {"target": two[0]["name"], "effect": "twice", "status": 201}
    assert judge(truth(*two, calls=(doubled,)), CLUSTER, set()).launched_twice == []


def test_a_foreign_machine_that_was_asked_to_end_was_touched_and_is_no_leak() -> None:
    theirs = machine("m-1", "n-1", "active")
    assert judge(truth(theirs), CLUSTER, {"m-1"}).foreign_touched == []
    assert judge(truth(theirs), CLUSTER, {"m-1"}).leaked == []
    asked = machine("m-1", "n-1", "active", stop_asked_at=3.0)
    assert judge(truth(asked), CLUSTER, {"m-1"}).foreign_touched == ["m-1"]
