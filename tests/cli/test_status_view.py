"""What `elasticd status` shows."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.ops.durations import age
from elasticd.ops.status_change import essence
from elasticd.ops.status_problems import is_fine
from elasticd.ops.status_view import render
from elasticd.ops.status_why import explain
from elasticd.ops.text_table import Paint, cells
from tests.cli.samples import sample_status


def shown(status: dict[str, Any], width: int = 140, terminal: bool = False) -> str:
    return "\n".join(render(status, width, Paint(terminal)))


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_a_model_is_shown_with_its_counts_and_its_chain_of_reasons() -> None:
    line = row(shown(sample_status()), "tiny")
    assert line.split()[:7] == ["tiny", "1/2", "1", "0", "7", "8", "0s"]
    assert "demand wants 3 → max_replicas 2" in line


def test_a_node_is_shown_with_phase_pool_gpus_market_price_and_age() -> None:
    status = sample_status()
    status["nodes"][0]["last_seen_age"] = 2.0
    text = shown(status)
    assert row(text, "k3f9-4-1").split() == (
        ["k3f9-4-1", "ready", "here", "1/1", "declared", "on-demand", "0.25", "USD", "11m", "2s"]
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


def test_a_fact_whose_age_is_not_known_is_not_shown_as_fresh() -> None:
    assert row(shown(sample_status()), "k3f9-4-1").split()[-1] == "?"


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
        ({"ready": 0, "starting": 0}, "! model tiny: no replica is ready"),
        (
            {"ready": 0, "lost": "replica r-1 ended: exit 1."},
            "! model tiny: no replica is ready; replica r-1 ended: exit 1",
        ),
        (
            {"lost": "replica r-1 ended: exit 1."},
            "! model tiny: 1 of 2 replicas are ready; replica r-1 ended: exit 1",
        ),
        ({"blocked": "sold out"}, "! model tiny: sold out"),
        ({"failures": 1, "last_cause": "exit 1"}, "1 failed start, last: exit 1"),
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
    assert "12s ago  model:tiny: one more replica: 15 requests" in shown(sample_status())


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(width: int) -> None:
    status = sample_status()
    status["models"][0]["name"] = "Qwen/Qwen2.5-14B-Instruct-AWQ"
    for replica, number in zip(status["replicas"], (17, 18), strict=True):
        replica.update(model="Qwen/Qwen2.5-14B-Instruct-AWQ", id=f"replica-1a2b3c4d-12-{number}")
        replica["node_id"] = f"node-1a2b3c4d-12-{number}"
    status["nodes"][0]["id"] = "node-1a2b3c4d-12-17"
    status["nodes"][1]["boot"] = "waiting for GPUs: the driver shows 0 of 4 of them since 12 s ago"
    text = shown(status, width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    words = set(text.split())
    assert {"Qwen/Qwen2.5-14B-Instruct-AWQ", "node-1a2b3c4d-12-17", "waiting"} <= words
    assert {"replica-1a2b3c4d-12-17", "replica-1a2b3c4d-12-18", "loading", "weights,"} <= words


def test_chinese_names_take_two_cells_and_keep_the_columns_straight() -> None:
    status = sample_status()
    status["models"].append(dict(status["models"][0], name="通义千问"))
    lines = [line for line in shown(status).splitlines() if "1/2" in line]
    assert len({cells(line[: line.index("1/2")]) for line in lines}) == 1


def test_without_a_terminal_there_are_no_escape_codes() -> None:
    assert "\x1b" not in shown(sample_status())
    assert "\x1b" in shown(sample_status(), terminal=True)


def test_words_of_others_move_no_cursor() -> None:
    status = sample_status(cluster_detail="\x1b[2Jnot ours")
    assert "\x1b" not in shown(status)
    assert "[2Jnot ours" in shown(status)


def test_progress_is_shown_with_what_it_usually_takes() -> None:
    status = sample_status()
    status["replicas"][1].update(phase_age=34.0, usual=60.0)
    status["nodes"][1].update(phase_age=10.0, usual=45.0)
    text = shown(status, width=200)
    assert "loading weights, 34s of usually ~1m" in text
    assert "starting ray, 10s of usually ~45s" in text


def lost_node(status: dict[str, Any], ago: float = 240.0) -> dict[str, Any]:
    reason = "interruption notice, 120 s left"
    return dict(status["nodes"][0], id="old-1", phase="gone", ended_age=ago, reason=reason)


def test_a_lost_node_stays_listed_with_its_reason_and_how_long_ago() -> None:
    status = sample_status()
    status["nodes"].insert(0, lost_node(status))
    line = row(shown(status), "4m ago")
    assert "node old-1 (pool here, on-demand): interruption notice, 120 s left" in line


def test_replicas_that_ended_never_crowd_out_a_lost_node() -> None:
    status = sample_status()
    status["nodes"].append(lost_node(status, ago=3000.0))
    stopped = dict(status["replicas"][0], phase="stopped", cause="too many")
    status["replicas"] += [dict(stopped, id=f"r-{n}", ended_age=float(n)) for n in range(50)]
    text = shown(status)
    assert "50m ago  node old-1" in text
    assert "0s ago  replica r-0 of tiny" in text
    assert "and 30 more replicas; `--json` has all" in text


def departure(**changes: Any) -> dict[str, Any]:
    return sample_status()["departures"][0] | {"whole_after": None} | changes


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("draining", "node k3f9-4-1 is going: interruption"),
        ("terminating", "node k3f9-4-1 is ending: interruption"),
        ("gone", "node k3f9-4-1 is gone: interruption"),
    ],
)
def test_a_fleet_that_waits_for_the_replacement_of_a_node_is_degraded(
    phase: str, words: str
) -> None:
    status = sample_status()
    status["nodes"][0]["phase"] = phase
    status["departures"] = [departure(node_id="k3f9-4-1")]
    assert not is_fine(status)
    assert f"1 of 2 replicas are ready; {words}" in shown(status, 200)
    status["models"][0]["ready"] = 2
    assert is_fine(status)


@pytest.mark.parametrize(
    "changes", [{"whole_after": 74.0}, {"taken_back": True}, {"models": ["other"]}]
)
def test_no_departure_of_before_is_blamed_for_a_fleet_that_grows(changes: dict[str, Any]) -> None:
    assert is_fine(sample_status(departures=[departure(**changes)]))


NEW = {"uptime": 5.0}
OLD = {"uptime": 500.0}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cluster_seen_age": None}, "the cluster agent has not reported yet"),
        ({"cluster_detail": "head silent"}, "cluster: head silent"),
        ({"pools": [{"name": "here", "listed_age": None}]}, "pool here: its machines have not"),
    ],
)
def test_what_a_new_controller_does_not_know_yet_is_no_fault(
    changes: dict[str, Any], line: str
) -> None:
    text = shown(sample_status(controller=NEW, **changes))
    assert "starting" in text.splitlines()[0]
    assert f"… {line}" in text
    assert f"! {line}" in shown(sample_status(controller=OLD, **changes))


def test_a_model_that_is_not_decided_about_yet_is_no_fault_of_a_new_controller() -> None:
    status = sample_status(controller=NEW)
    status["models"][0].update(wanted=None, ready=0, starting=0)
    assert "… model tiny: how many replicas it needs is not decided" in shown(status)


def test_what_a_new_controller_cannot_order_yet_is_no_fault() -> None:
    status = sample_status(controller=NEW)
    status["models"][0].update(ready=0, blocked="the cluster agent does not answer")
    text = shown(status)
    assert "… model tiny: its first replica is not ready yet: the cluster agent does" in text
    assert "starting" in text.splitlines()[0]
    status["controller"] = OLD
    assert "! model tiny: the cluster agent does not answer" in shown(status)


def test_failed_starts_are_history_once_all_replicas_serve() -> None:
    status = sample_status()
    status["models"][0].update(ready=2, failures=1, last_cause="exit 1.", last_tail=["x"])
    text = shown(status, 200)
    assert "- model tiny: 1 failed start before, last: exit 1; forgotten when" in text
    assert is_fine(status)


def test_a_replica_that_was_too_many_makes_nothing_degraded() -> None:
    status = sample_status()
    status["nodes"].append(lost_node(status) | {"reason": "no replica for 120 s"})
    replica = dict(status["replicas"][0], id="r-old", phase="stopped", node_id="old-1")
    status["replicas"].append(replica | {"cause": "scaled down to 1"})
    status["departures"] = [departure(node_id="old-1", whole_after=0.0)]
    assert is_fine(status)


def test_a_failed_model_shows_the_last_lines_of_its_engine() -> None:
    status = sample_status()
    status["models"][0].update(
        ready=0, failures=5, failed=True, last_cause="exit 1", last_tail=["Traceback", "OSError: x"]
    )
    text = shown(status, 200)
    assert "model tiny: failed: 5 starts in a row failed and nothing more is bought for it" in text
    assert "| Traceback" in " ".join(text.split())
    assert "| OSError: x" in " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"controller": {"reload": {"problem": "a.yaml:3: no", "at_age": 5.0}}},
            "! the reload 5s ago was refused, the configuration before it holds: a.yaml:3: no",
        ),
        (
            {"pools": [{"name": "here", "listed_age": 1.0, "stuck": ["i-1 ends since 20 min"]}]},
            "! pool here: i-1 ends since 20 min",
        ),
    ],
)
def test_what_hangs_or_was_refused_is_degraded(changes: dict[str, Any], line: str) -> None:
    status = sample_status(**changes)
    assert line in shown(status)
    assert not is_fine(status)


def test_a_machine_that_no_node_stands_for_is_shown_counted_and_not_fine() -> None:
    status = sample_status()
    status["pools"][0]["orphans"] = ["i-77"]
    text = "\n".join(render(status, 200, Paint(False)))
    told = "! pool here: 1 machine of ours that should not be there (1 of unknown price), will be"
    assert told in text
    assert "2 machines + 1 of no node" in text.splitlines()[0]
    assert not is_fine(status)
    status["pools"][0]["orphans"] = ["i-77", "i-78"]
    text = "\n".join(render(status, 200, Paint(False)))
    assert "2 machines of ours that should not be there" in text
    assert "i-77, i-78; no node stands for them" in text
    assert "+ 2 of no node" in text
    status["pools"][0]["orphans"] = []
    assert is_fine(status)


def test_a_reload_that_takes_long_is_told_and_is_nothing_wrong() -> None:
    status = sample_status()
    status["controller"]["reload"] = {"running_for": 7.0}
    assert any("read for 7s" in line for line in render(status, 200, Paint(False)))
    assert is_fine(status)
    status["controller"]["reload"] = {"running_for": 0.1}
    assert not any("has been read" in line for line in render(status, 200, Paint(False)))


def test_a_gpu_that_something_holds_is_told_with_its_process() -> None:
    status = sample_status()
    status["nodes"][0]["held"] = ["GPU 0 is held by process 4711 (python3)"]
    assert "! node k3f9-4-1: GPU 0 is held by process 4711 (python3)" in shown(status)


def test_a_hold_is_told_and_is_nothing_wrong() -> None:
    status = sample_status()
    status["models"][0]["hold"] = {"replicas": 2, "seconds_left": 7200.0, "by": "ann"}
    assert "- model tiny: held at 2 replicas for 2h more by ann" in shown(status)
    assert is_fine(status)


def test_a_replica_that_takes_no_requests_is_told() -> None:
    status = sample_status()
    status["replicas"][0]["closed_for"] = 2.0
    assert is_fine(status), "most come back in a moment"
    status["replicas"][0]["closed_for"] = 40.0
    assert "! replica k3f9-4-3 of tiny: takes no requests for 40s" in shown(status)


def test_failed_starts_of_a_roll_out_are_no_history() -> None:
    status = sample_status()
    status["models"][0].update(ready=2, failures=2, last_cause="exit 2", outdated=2)
    assert "! model tiny: 2 failed starts in a row, last: exit 2" in shown(status)


def test_of_an_old_state_nothing_is_called_healthy() -> None:
    text = "\n".join(render(sample_status(), 100, Paint(False), old=True))
    assert "LAST KNOWN STATE" in text.splitlines()[0]
    assert "healthy" not in text


def test_a_long_cause_is_cut_to_what_can_be_read() -> None:
    status = sample_status()
    status["replicas"][0].update(phase="draining", cause="it died\nbecause " + "of this " * 90)
    assert "it died because of this" in shown(status)
    assert shown(status).count("of this") < 30


def test_an_empty_fleet_is_said_in_words() -> None:
    assert "no machines" in shown(sample_status(nodes=[], replicas=[]))


def test_a_status_with_only_what_old_controllers_tell_is_shown() -> None:
    status = {
        "models": [{"name": "m"}],
        "nodes": [{"id": "n", "phase": "ready"}],
        "replicas": [{"id": "r", "model": "m", "phase": "starting"}],
        "pools": [{"name": "p"}],
    }
    assert row(shown(status), "m").split()[1] == "?/?"
    assert explain(status, status["models"], 80, Paint(False))


def why(status: dict[str, Any]) -> str:
    return "\n".join(explain(status, status["models"], 100, Paint(False)))


def test_why_tells_the_chain_of_reasons_and_what_is_in_the_way() -> None:
    status = sample_status()
    blocked = "needs 4 GPUs on one node; nodes with 2 and 2 are there"
    status["models"][0]["blocked"] = blocked
    status["pools"][0]["last_error"] = "NoCapacity: sold out"
    text = " ".join(why(status).split())
    assert "tiny: wants 2; 1 ready, 1 starting" in text
    assert "because demand wants 3 max_replicas 2" in text
    assert f"but {blocked}" in text
    assert "k3f9-4-4 on k3f9-4-2: loading weights, 12s; the node: starting ray" in text
    assert "pools here: NoCapacity: sold out here: 1 machine is on the way" in text
    assert "lately 12s ago: one more replica: 15 requests" in text


def test_why_tells_what_became_of_nodes_that_went() -> None:
    status = sample_status()
    departure = {
        **{"node_id": "k3f9-4-9", "age": 240.0, "why": "notice", "models": ["tiny"]},
        **{"notice": None, "taken_back": False, "ended_after": 31.0, "whole_after": None},
        **{"finished": 3, "continued": 41, "restarted": 2, "lost": 0},
    }
    status["departures"] = [departure, {**departure, "node_id": "k3f9-4-8", "models": ["other"]}]
    text = " ".join(why(status).split())
    assert "k3f9-4-9 (notice) went out of service after 31s: 3 finished there, 41 continued" in text
    assert "not yet at full strength" in text
    assert "k3f9-4-8" not in text


def test_ages_that_grow_are_no_change_and_phases_are() -> None:
    now, later = sample_status(), sample_status(at=1001.0, cluster_seen_age=1.4)
    later["nodes"][0].update(age=701.0, phase_age=601.0, last_seen_age=1.0)
    assert essence(now) == essence(later)
    later["nodes"][0]["phase"] = "draining"
    assert essence(now) != essence(later)


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
