"""The commands: what they print, what they ask the daemon, and their exit codes."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import down as down_module
from elasticd.cli import main
from elasticd.cli.admin_client import AdminClient
from elasticd.cli.descent import Descent
from elasticd.cli.unattended import SUPERVISOR_LOCK
from elasticd.ops.process_mark import mark_file, mark_of, write_mark
from tests.cli.fake_daemon import FakeDaemon, fake_daemon
from tests.cli.samples import sample_status

GOOD = """
cluster: test
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 2}]
models: [{name: m, source: "file:weights"}]
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with fake_daemon(tmp_path / "admin.sock") as serving:
        serving.statuses = [sample_status()]
        yield serving


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "elasticd.yaml"
    path.write_text(GOOD)
    (tmp_path / "weights").mkdir()
    return path


def usage_exit(*argv: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_configuration_may_come_from_the_environment(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICD_CONFIG", str(config))
    assert main(["check"]) == 0


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["check", "--colour"], ["drill", "preempt"]])
def test_wrong_usage_is_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_exit(*argv) == 2
    assert "usage: elasticd" in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_exit("--help") == 0
    assert "3 daemon not reachable" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [["status"], ["down", "--yes"], ["drill", "preempt", "n"]])
def test_without_a_daemon_it_is_3_and_said_where_was_asked(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = tmp_path / "nobody.sock"
    assert main([*command, "--socket", str(socket)]) == 3
    assert f"no daemon answers at {socket}; start it" in capsys.readouterr().err


def test_the_socket_is_found_by_the_configuration(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "-c", str(config)]) == 3
    assert str(config.parent / "state" / "run" / "admin.sock") in capsys.readouterr().err


def test_status_of_a_fleet_in_order_is_0(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--socket", str(daemon.path)]) == 0
    assert "tiny" in capsys.readouterr().out


def test_status_of_a_degraded_fleet_is_1(daemon: FakeDaemon) -> None:
    daemon.statuses = [sample_status(cluster_detail="the head is silent")]
    assert main(["status", "--socket", str(daemon.path)]) == 1


def test_status_as_json_is_what_the_daemon_tells(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--json", "--socket", str(daemon.path)]) == 0
    assert json.loads(capsys.readouterr().out) == sample_status()


def going_down(left: int) -> dict[str, Any]:
    status = sample_status(down={"left": left})
    status["nodes"] = status["nodes"][:left]
    return status


def test_down_asks_the_daemon_follows_and_says_what_was_ended(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_module, "_POLL", 0.0)
    daemon.statuses = [sample_status(), sample_status(), going_down(1), going_down(0)]
    assert main(["down", "--yes", "--socket", str(daemon.path)]) == 0
    out = capsys.readouterr().out
    assert daemon.asked == [("/api/v1/down", {"by": "elasticd down"})]
    assert "waiting for 1 machine to end: k3f9-4-1 (pool here, ready)" in out
    assert "ended k3f9-4-1 (pool here, on_demand at 0.25 USD/h)" in out
    assert "2 machines ended" in out


@pytest.fixture
def survivors(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Two processes of an `elasticd run` that was killed, with their marks."""
    processes = {name: subprocess.Popen(["sleep", "600"]) for name in ("head", "gateway")}
    for name, process in processes.items():
        mark = mark_of(process.pid)
        assert mark is not None
        write_mark(mark_file(tmp_path, name), mark)
    yield {name: process.pid for name, process in processes.items()}
    for process in processes.values():
        process.kill()
        process.wait()


def test_down_tells_of_processes_that_no_supervisor_looks_after(
    daemon: FakeDaemon, survivors: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [going_down(0)]
    argv = ["down", "--yes", "--socket", str(daemon.path)]
    assert main(argv) == 1
    said = capsys.readouterr()
    assert "nothing is left" not in said.out
    assert "no machine is left" in said.out
    assert f"head (process {survivors['head']}), gateway (process" in said.err
    assert "`elasticd run` takes over and, when it is stopped, ends them" in said.err
    assert main([*argv, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["still_running"] == survivors


def test_down_says_that_nothing_is_left_while_a_supervisor_looks_after_the_rest(
    daemon: FakeDaemon,
    survivors: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daemon.statuses = [going_down(0)]
    with (tmp_path / SUPERVISOR_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["down", "--yes", "--socket", str(daemon.path)]) == 0
    assert "nothing is left" in capsys.readouterr().out
    assert survivors


def test_down_is_not_done_while_a_pool_could_not_be_listed(daemon: FakeDaemon) -> None:
    status = going_down(0)
    status["down"] = {"left": 1}
    daemon.statuses = [status, going_down(0)]
    descent = Descent(AdminClient(daemon.path), "test")
    assert descent.look() == "the providers to say of 1 machine that it is gone"
    assert descent.look() is None


def test_down_is_asked_again_of_a_controller_that_was_restarted(daemon: FakeDaemon) -> None:
    daemon.statuses = [sample_status(), going_down(1), sample_status(), going_down(0)]
    descent = Descent(AdminClient(daemon.path), "test")
    told = [descent.look() for _ in range(4)]
    assert told[-1] is None
    assert len(daemon.asked) == 2


class Terminal:
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_down_asks_first_in_a_terminal_and_no_means_no(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "n")
    assert main(["down", "--socket", str(daemon.path)]) == 1
    assert "2 machines (k3f9-4-1, k3f9-4-2)" in questions[0]
    assert daemon.asked == []


@pytest.mark.parametrize(("argv", "notice"), [([], None), (["--notice", "30s"], 30.0)])
def test_a_drill_takes_the_node_at_once_or_after_a_notice(
    daemon: FakeDaemon, argv: list[str], notice: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.cli.drill.asked_by", lambda: "ann")
    argv = ["drill", "preempt", "n-1", *argv, "--no-wait", "--socket", str(daemon.path)]
    assert main(argv) == 0
    assert daemon.asked == [("/api/v1/nodes/n-1/preempt", {"notice": notice, "by": "ann"})]


@pytest.mark.parametrize(("status", "code"), [(404, 2), (400, 2), (409, 1), (502, 1)])
def test_what_the_daemon_refuses_is_told_in_its_words(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], status: int, code: int
) -> None:
    daemon.refusal = (status, "no node 'n-9'; nodes there are: k3f9-4-1")
    assert main(["drill", "preempt", "n-9", "--socket", str(daemon.path)]) == code
    assert "nodes there are: k3f9-4-1" in capsys.readouterr().err
