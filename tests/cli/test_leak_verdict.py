"""Whose a listed machine is, and whether it should be there."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.cli.leak_ledger import LedgerView
from elasticd.cli.leak_verdict import Found, Verdict, judge
from elasticd.provider import Instance, InstanceState

NOW = 10_000.0
V = Verdict


def node(node_id: str = "node-1", phase: str = "ready", **more: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "pool": "spot",
        "phase": phase,
        "since": NOW - 600,
        "instance_id": "i-1",
        "reason": "",
        "price_micros": 700_000,
        "currency": "CNY",
        **more,
    }


def ledger(*nodes: dict[str, Any], **more: Any) -> LedgerView:
    return LedgerView("ours", "test", {n["id"]: n for n in nodes}, **more)


def machine(
    instance_id: str = "i-1", node_id: str | None = "node-1", ledger_id: str | None = "ours"
) -> Instance:
    return Instance(instance_id, node_id, ledger_id, InstanceState.RUNNING)


def only(view: LedgerView, *instances: Instance) -> Found:
    (found,) = judge({"spot": instances}, view, NOW)
    return found


@pytest.mark.parametrize("phase", ["requested", "booting", "ready", "draining"])
def test_a_machine_of_a_living_node_is_known(phase: str) -> None:
    assert only(ledger(node(phase=phase)), machine()).verdict is V.KNOWN


@pytest.mark.parametrize(("since", "verdict"), [(30.0, V.KNOWN), (121.0, V.OVERDUE)])
def test_a_machine_that_should_have_ended_long_ago_is_overdue(
    since: float, verdict: Verdict
) -> None:
    found = only(ledger(node(phase="terminating", since=NOW - since)), machine())
    assert found.verdict is verdict


def test_a_machine_of_ours_without_a_node_is_a_leak() -> None:
    found = only(ledger(), machine())
    assert found.verdict is V.LEAK
    assert "no node node-1" in found.why


def test_a_machine_whose_node_has_ended_is_a_leak_and_says_why_the_node_did() -> None:
    found = only(ledger(node(phase="gone", reason="no replica for 120 s")), machine())
    assert found.verdict is V.LEAK
    assert found.why == "its node node-1 ended 10m ago: no replica for 120 s"


def test_a_machine_of_another_ledger_is_foreign_whatever_its_node_is_called() -> None:
    found = only(ledger(node()), machine("i-9", ledger_id="theirs"))
    assert found.verdict is V.FOREIGN
    assert "`elasticd adopt --ledger theirs`" in found.why


def test_a_machine_of_an_adopted_ledger_is_ours_and_no_leak_before_it_is_a_node() -> None:
    adopted = frozenset({"theirs"})
    theirs = machine("i-9", "node-9", "theirs")
    assert only(ledger(adopted=adopted), theirs).verdict is V.KNOWN
    gone = node("node-9", "gone")
    assert only(ledger(gone, adopted=adopted), theirs).verdict is V.LEAK


@pytest.mark.parametrize("owner", [None, "ours"])
def test_a_machine_without_marks_is_known_by_its_id_and_else_never_called_a_leak(
    owner: str | None,
) -> None:
    assert only(ledger(node()), machine("i-1", None, owner)).verdict is V.KNOWN
    assert only(ledger(node()), machine("i-2", None, owner)).verdict is V.UNMARKED


def test_a_second_machine_of_one_node_is_a_leak_and_its_own_is_not() -> None:
    found = judge({"spot": [machine("i-2"), machine("i-1")]}, ledger(node()), NOW)
    assert {f.instance.instance_id: f.verdict for f in found} == {"i-1": V.KNOWN, "i-2": V.LEAK}


def test_of_two_machines_of_one_node_neither_is_a_leak_while_its_own_is_not_known() -> None:
    view = ledger(node(instance_id=None))
    found = judge({"spot": [machine("i-2"), machine("i-1")]}, view, NOW)
    assert {f.verdict for f in found} == {V.UNMARKED}


def test_a_machine_that_two_pools_list_is_told_once_in_its_nodes_pool() -> None:
    (found,) = judge({"a": [machine()], "spot": [machine()], "z": [machine()]}, ledger(node()), NOW)
    assert (found.pool, found.verdict) == ("spot", V.KNOWN)


def test_with_a_damaged_ledger_nothing_is_a_leak() -> None:
    view = LedgerView(problem="the ledger is damaged")
    assert only(view, machine()).verdict is V.UNKNOWN
    assert only(view, machine(ledger_id=None)).verdict is V.UNMARKED


def test_with_no_ledger_at_all_every_machine_is_another_ones() -> None:
    view = LedgerView(problem="no ledger here", missing=True)
    assert only(view, machine()).verdict is V.FOREIGN


def test_a_price_that_the_provider_does_not_tell_is_that_of_the_node_or_unknown() -> None:
    assert only(ledger(node()), machine()).price == (700_000, "CNY")
    assert only(ledger(), machine()).price is None


LEDGER = "0123456789abcdef"


def given(epoch: int, number: int, launched_at: float | None = None) -> Instance:
    marked = f"n-{LEDGER[:8]}-{epoch}-{number}"
    return Instance("i-1", marked, LEDGER, InstanceState.RUNNING, None, None, launched_at)


def lives(**more: Any) -> LedgerView:
    """A ledger in its third life, whose journal reaches back into its second."""
    known: dict[str, Any] = {
        "minted": {3: 7, 2: 5},
        "history_since": 2,
        "launched": frozenset({given(3, 7).node_id, given(3, 2).node_id}),
        "began": NOW - 500,
        **more,
    }
    return LedgerView(LEDGER, "test", {}, epoch=3, **known)


@pytest.mark.parametrize(
    "stranger",
    [
        given(4, 1),
        given(3, 8),
        given(3, 5),
        given(2, 6),
    ],
)
def test_of_an_id_that_this_ledger_has_not_given_is_told_what_it_can_be(
    stranger: Instance,
) -> None:
    found = only(lives(), stranger)
    assert found.verdict is V.UNKNOWN
    assert "of a later state of it, or of another elasticd that uses a copy of it" in found.why
    assert "not ended here; a controller that is started with this ledger ends it" in found.why


@pytest.mark.parametrize("late", [given(2, 5, NOW - 100), given(1, 1, NOW)])
def test_what_was_launched_after_its_life_had_ended_is_a_rivals(late: Instance) -> None:
    found = only(lives(), late)
    assert found.verdict is V.RIVAL
    assert "another elasticd acts under a copy of this state directory" in found.why


@pytest.mark.parametrize(
    "own",
    [given(3, 7), given(3, 2), given(2, 5, NOW - 480), given(1, 900), given(1, 900, NOW - 900)],
)
def test_an_id_that_this_ledger_gave_or_may_have_given_is_our_own(own: Instance) -> None:
    assert only(lives(), own).verdict is V.LEAK


def test_without_its_history_a_ledger_knows_no_stranger_but_of_a_later_life() -> None:
    view = lives(history_since=None, minted={}, began=None)
    assert only(view, given(3, 900)).verdict is V.LEAK
    assert only(view, given(4, 1)).verdict is V.UNKNOWN


def test_an_adopted_ledger_that_goes_on_to_launch_has_a_living_owner() -> None:
    view = lives(adopted=frozenset({"theirs"}), adopted_at={"theirs": NOW - 300})
    late = Instance("i-9", "n-theirs-1-9", "theirs", InstanceState.RUNNING, launched_at=NOW - 10)
    found = only(view, late)
    assert found.verdict is V.RIVAL
    assert "its elasticd lives" in found.why


def test_a_rival_that_people_have_adopted_is_one_no_more() -> None:
    view = lives(adopted=frozenset({f"{LEDGER}+rival"}))
    assert only(view, given(4, 1)).verdict is V.KNOWN
    assert only(view, given(3, 7)).verdict is V.LEAK
