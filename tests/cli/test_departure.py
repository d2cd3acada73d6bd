"""`drain` and `drill preempt` wait for what becomes of the node, and tell it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import departure, main
from elasticd.errors import NotReachable
from tests.cli.fake_daemon import FakeDaemon, fake_daemon
from tests.cli.samples import sample_status

NODE = "n-1"


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setattr(departure, "_POLL", 0.0)
    monkeypatch.setattr(departure, "_SETTLED", 0.0)
    with fake_daemon(tmp_path / "admin.sock") as serving:
        yield serving


def status(phase: str, **departed: Any) -> dict[str, Any]:
    """With the node in this phase, and a departure where anything is said of one."""
    told = sample_status()
    told["nodes"] = [{**told["nodes"][0], "id": NODE, "phase": phase}]
    usual = {
        "node_id": NODE,
        "age": 0.0,
        "why": "drained",
        "models": ["tiny"],
        "notice": 30.0,
        "taken_back": False,
        "ended_after": None,
        "whole_after": None,
        "finished": 0,
        "continued": 0,
        "restarted": 0,
        "lost": 0,
    }
    told["departures"] = [{**usual, **departed}] if departed else []
    return told


def told_by(daemon: FakeDaemon, *command: str) -> int:
    return main([*command, NODE, "--socket", str(daemon.path)])


OVER = {"ended_after": 31.0, "whole_after": 74.0, "finished": 3, "continued": 41, "restarted": 2}


@pytest.mark.parametrize("command", [("drain",), ("drill", "preempt")])
def test_it_waits_for_the_end_and_the_replacement_and_tells_all_counts(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    daemon.statuses = [
        status("ready"),
        status("draining", finished=1),
        status("terminating", finished=3, continued=41, ended_after=31.0),
        status("gone", **OVER),
    ]
    assert told_by(daemon, *command) == 0
    shown = capsys.readouterr().out
    counts = "3 finished there, 41 continued elsewhere, 2 started again, 0 lost"
    assert f"{NODE} went out of service after 31s: {counts}; full strength after 1m" in shown
    assert daemon.statuses == [status("gone", **OVER)], "it has looked at each of them"


def test_a_lost_request_is_exit_1(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.statuses = [status("gone", **OVER, lost=1)]
    assert told_by(daemon, "drain") == 1
    assert "1 lost" in capsys.readouterr().out


def test_what_is_not_known_to_be_nothing_is_exit_1(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [status("gone", **OVER, partial=True)]
    assert told_by(daemon, "drain") == 1
    assert "what it had under way is not counted" in capsys.readouterr().out


def test_the_outcome_as_json_is_all_that_is_printed(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [status("draining", finished=1), status("gone", **OVER)]
    assert told_by(daemon, "drill", "preempt", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["node_id"], told["complete"]) == (NODE, True)
    assert told["outcome"]["continued"] == 41


def test_a_drain_that_is_taken_back_meanwhile_is_no_failure(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [status("draining", finished=1), status("ready", taken_back=True)]
    assert told_by(daemon, "drain") == 0
    assert f"{NODE} stays" in capsys.readouterr().out


def test_what_an_earlier_drain_left_behind_is_not_taken_for_this_one(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [
        status("ready", taken_back=True, age=500.0, lost=9),
        status("gone", **OVER),
    ]
    assert told_by(daemon, "drain") == 0
    assert "0 lost" in capsys.readouterr().out


def test_a_node_that_served_nothing_is_told_as_such(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [status("ready"), status("terminating")]
    assert told_by(daemon, "drain") == 0
    assert "nothing served there" in capsys.readouterr().out


def test_whoever_does_not_wait_is_not_told(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [status("ready")]
    assert told_by(daemon, "drain", "--no-wait") == 0
    assert "finished" not in capsys.readouterr().out


def test_what_does_not_end_in_time_is_exit_1_with_what_is_known(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "_LONGEST", -119.5)
    daemon.statuses = [status("terminating", ended_after=31.0, continued=4)]
    assert told_by(daemon, "drain") == 1
    shown = capsys.readouterr().out
    assert "4 continued elsewhere" in shown
    assert "not yet at full strength" in shown


def test_a_daemon_that_restarts_is_waited_for_and_one_that_stays_away_is_an_error(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, True])
    before = departure.AdminClient.status

    def now_and_then(client: departure.AdminClient) -> dict[str, Any]:
        if not next(answers, True):
            raise NotReachable("it restarts")
        return before(client)

    monkeypatch.setattr(departure.AdminClient, "status", now_and_then)
    daemon.statuses = [status("gone", **OVER)]
    assert told_by(daemon, "drain") == 0
    monkeypatch.setattr(departure, "_SILENT", 0.0)
    answers = iter([False] * 9)
    assert told_by(daemon, "drain") == 3
