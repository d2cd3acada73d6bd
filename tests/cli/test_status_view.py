"""What `elasticd status` shows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from elasticd.ops.status_view import age, render
from tests.cli.samples import sample_status


def shown(status: dict[str, Any], width: int = 120, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, highlight=False).print(render(status))
    return out.getvalue()


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_a_model_is_shown_with_its_counts_and_its_chain_of_reasons() -> None:
    line = row(shown(sample_status()), "tiny")
    assert line.split()[:6] == ["tiny", "1/2", "1", "0", "7", "8"]
    assert "demand wants 3 → max_replicas 2" in line


def test_a_node_is_shown_with_phase_pool_gpus_market_price_and_age() -> None:
    text = shown(sample_status())
    assert row(text, "k3f9-4-1").split() == (
        ["k3f9-4-1", "ready", "here", "1/1", "declared", "on", "demand", "0.25", "USD", "11m"]
    )
    assert "starting ray" in row(text, "k3f9-4-2")


def test_an_unknown_price_is_a_question_mark_and_not_free() -> None:
    text = shown(sample_status())
    assert "0.25 USD/h + 1 of unknown price" in text
    assert row(text, "k3f9-4-2").split()[6] == "?"


def test_unknown_counts_are_question_marks_and_not_zero() -> None:
    status = sample_status()
    status["models"][0].update(queued=None, in_flight=None, wanted=None)
    assert row(shown(status), "tiny").split()[:6] == ["tiny", "1/?", "1", "0", "?", "?"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "healthy"),
        ({"cluster_seen_age": None}, "degraded"),
        ({"controller": {"problem": "stopped by a fault"}}, "degraded"),
        ({"pools": [{"name": "here", "listed_age": None}]}, "degraded"),
        ({"down": {"left": 1}}, "going down"),
    ],
)
def test_the_headline_tells_the_health(changes: dict[str, Any], word: str) -> None:
    assert word in shown(sample_status(**changes)).splitlines()[0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cluster_seen_age": None}, "! the cluster agent has not reported yet"),
        ({"cluster_seen_age": 95.0}, "! the cluster agent last reported 1m35s ago"),
        ({"cluster_detail": "head silent"}, "! cluster: head silent"),
        (
            {"pools": [{"name": "here", "listed_age": None}]},
            "! pool here: its machines have not been listed yet",
        ),
        (
            {"pools": [{"name": "here", "listed_age": 1.0, "last_error": "NoCapacity: sold out"}]},
            "! pool here: NoCapacity: sold out",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line_of_its_own(changes: dict[str, Any], line: str) -> None:
    assert line in shown(sample_status(**changes))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"wanted": None}, "! model tiny: it is not known yet how many replicas it needs"),
        ({"ready": 0}, "! model tiny: no replica is ready"),
        ({"blocked": "sold out"}, "! model tiny: sold out"),
        ({"failures": 3, "last_cause": "exit 1"}, "3 failed starts in a row, last: exit 1"),
    ],
)
def test_a_model_in_trouble_is_degraded_and_says_why(changes: dict[str, Any], line: str) -> None:
    status = sample_status()
    status["models"][0].update(changes)
    text = shown(status)
    assert line in text
    assert "degraded" in text.splitlines()[0]


def test_a_fleet_that_grows_is_not_degraded() -> None:
    assert "healthy" in shown(sample_status()).splitlines()[0]


def test_the_latest_decisions_are_shown_with_their_age() -> None:
    assert "12s ago  model:tiny  one more replica: 15 requests" in shown(sample_status())


def test_nothing_is_wider_than_a_small_terminal() -> None:
    text = shown(sample_status(), width=80)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "k3f9-4-1" in text
    assert "k3f9-4-2" in text


def test_without_a_terminal_there_are_no_escape_codes() -> None:
    assert "\x1b" not in shown(sample_status())
    assert "\x1b" in shown(sample_status(), terminal=True)


def test_words_of_others_are_not_read_as_markup() -> None:
    status = sample_status(cluster_detail="[bold]not ours[/nothing]")
    assert "[bold]not ours[/nothing]" in shown(status)


def test_of_what_ended_only_the_last_few_are_shown() -> None:
    status = sample_status()
    old = [dict(status["nodes"][0], id=f"old-{n}", phase="gone", since=float(n)) for n in range(9)]
    text = shown(status | {"nodes": old + status["nodes"]})
    assert [n for n in range(9) if f"old-{n}" in text] == [6, 7, 8]
    assert text.index("k3f9-4-2") < text.index("old-6")


def test_a_long_cause_is_cut_to_a_line_that_fits() -> None:
    status = sample_status()
    status["replicas"][0].update(phase="stopped", cause="it died\nbecause " + "of this " * 50)
    assert "it died because of this" in shown(status)
    assert len([line for line in shown(status).splitlines() if "of this" in line]) < 3


def test_an_empty_fleet_is_said_in_words() -> None:
    assert "no machines" in shown(sample_status(nodes=[], replicas=[]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0.2, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (720, "12m"),
        (12000, "3h20m"),
        (190_000, "2d4h"),
    ],
)
def test_ages_are_short(seconds: float | None, text: str) -> None:
    assert age(seconds) == text
