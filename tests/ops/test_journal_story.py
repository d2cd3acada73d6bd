"""What a journal entry tells people."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from elasticd.core import events as ev
from elasticd.core.codec import to_json
from elasticd.core.specs import FleetSpec
from elasticd.ops import journal_story
from elasticd.ops.journal_story import tell
from elasticd.provider import Instance, InstanceState
from elasticd.runtime.ledger import JournalEntry

INSTANCE = Instance("i-7", "node-1", "l", InstanceState.RUNNING)


def told(*events: Any, reasons: list[dict[str, str]] | None = None) -> Any:
    plan = {"reasons": reasons or []}
    return tell(JournalEntry(12.5, tuple(to_json(event) for event in events), plan, 3, 2))


@pytest.mark.parametrize(
    ("event", "subject", "text"),
    [
        (ev.LaunchAnswered("node-1", INSTANCE), "node:node-1", "gave machine i-7"),
        (
            ev.LaunchFailed("node-1", "NoCapacity", "sold out", True),
            "node:node-1",
            "refused: NoCap",
        ),
        (ev.TerminateAnswered("", "i-9", True), "machine:i-9", "i-9 is gone"),
        (ev.TerminateFailed("node-1", "i-7", "RateLimited", "slow"), "node:node-1", "slow"),
        (ev.ListFailed("spot", "instances", "Unavailable", "503"), "pool:spot", "Unavailable: 503"),
        (ev.ClusterUnreachable("refused"), "cluster", "does not answer: refused"),
        (ev.EndpointBroken("r-1", 1, "reset"), "replica:r-1", "broke: reset"),
        (ev.GatewayBegan(), "fleet", "started again"),
        (ev.RequestsMoved("r-1", 2, 41, 3, 0), "replica:r-1", "41 continued"),
        (ev.ReplicaOrderFailed("r-1", 1, "start", "wrong", True), "replica:r-1", "was refused"),
        (ev.NoticeArrived("x", "spot", "i-7", "interruption", 120.0), "pool:spot", "120 s left"),
        (ev.NoticeArrived("x", "spot", "i-7", "rebalance", None), "pool:spot", "no end is set"),
        (ev.NoticeTakenBack("x", "spot", "i-7"), "pool:spot", "withdrawn"),
        (ev.DownRequested("ann"), "fleet", "asked by ann"),
        (ev.ServeRequested("started by hand"), "fleet", "started by hand"),
        (ev.AdoptRequested("left9", "ann"), "fleet", "machines of ledger left9 adopted by ann"),
        (ev.BootLogRead("node-1", ("a", "no route")), "node:node-1", "last it printed: no route"),
        (ev.BootLogRead("node-1", ()), "node:node-1", "nothing is known of what it printed"),
        (ev.DrainRequested("node-1", 120.0, "ann"), "node:node-1", "within 120 s asked by ann"),
        (ev.DrillRequested("node-1", None, "ann"), "node:node-1", "at once asked by ann"),
        (ev.DrillRequested("node-1", 30.0, "ann"), "node:node-1", "30 s after a notice asked by"),
        (ev.UndrainRequested("node-1", "ann"), "node:node-1", "taken back by ann"),
        (ev.ScaleHeld("qwen", 3, None, "ann"), "model:qwen", "at 3 replicas until released by ann"),
        (ev.ScaleHeld("qwen", 3, 60.0, "ann"), "model:qwen", "for 60 s by ann"),
        (ev.HoldReleased("qwen", "ann"), "model:qwen", "given back to the autoscaler by ann"),
        (ev.Configured(FleetSpec("prod", (), ())), "cluster:prod", "configuration taken"),
        (ev.ReloadRefused("no models", "ann"), "fleet", "reload refused, asked by ann: no models"),
    ],
)
def test_a_fact_is_told_with_who_and_what(event: Any, subject: str, text: str) -> None:
    (fact,) = told(event)["facts"]
    assert fact["subject"] == subject
    assert text in fact["text"]


def test_every_kind_of_fact_is_told_or_left_out_on_purpose() -> None:
    repeating = {
        "OfferingsListed",
        "InstancesListed",
        "ClusterObserved",
        "DemandSampled",
        "LoadSampled",
        "ReplicaOrderTaken",
        "DayTold",
    }
    kinds = {kind.__name__ for kind in typing.get_args(ev.Event)}
    assert kinds - repeating == set(journal_story._WORDS)


def test_reasons_come_with_their_subjects() -> None:
    entry = told(reasons=[{"subject": "node:node-1", "text": "booting → ready: joined"}])
    assert entry["lines"] == [{"subject": "node:node-1", "text": "booting → ready: joined"}]
    assert (entry["seq"], entry["at"], entry["epoch"], entry["facts"]) == (3, 12.5, 2, [])


@pytest.mark.parametrize(
    ("event", "subject", "decided"),
    [
        (ev.ScaleHeld("m", 2, None, "ann"), "model:m", "held at 2 until released (ann)"),
        (ev.DrainRequested("n", 9.0, "ann"), "node:n", "ready → draining: drained by ann, 9 s"),
        (ev.DownRequested("ann"), "fleet", "everything is given back (ann)"),
        (ev.ReloadRefused("a\nb", "ann"), "fleet", "reload refused (ann): a b"),
        (
            ev.Configured(FleetSpec("prod", (), ()), True, ("models[m].scaling", "budget")),
            "fleet",
            "reloaded: models[m].scaling, budget",
        ),
    ],
)
def test_a_fact_that_a_decision_repeats_is_marked_as_told(
    event: Any, subject: str, decided: str
) -> None:
    (fact,) = told(event, reasons=[{"subject": subject, "text": decided}])["facts"]
    assert fact["echoed"]
    for reasons in ([], [{"subject": "model:other", "text": decided}]):
        (fact,) = told(event, reasons=reasons)["facts"]
        assert not fact["echoed"]


def test_an_entry_of_samples_alone_tells_nothing() -> None:
    assert told(ev.LoadSampled(())) is None


def test_a_fact_of_another_version_still_counts_as_having_happened() -> None:
    entry = tell(JournalEntry(1.0, ({"type": "DrainRequested", "node": "n"},), {"reasons": []}))
    assert entry is not None
    assert entry["facts"][0]["subject"] == "DrainRequested"


def test_words_of_others_are_one_line_without_control_characters() -> None:
    (fact,) = told(ev.ClusterUnreachable("a\nb\x1b[2Jc"))["facts"]
    assert "\x1b" not in fact["text"]
    assert "a b" in fact["text"]
