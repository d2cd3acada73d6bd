"""What `elasticd run` promises of the processes it keeps, with stand-ins for them."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.cli.admin_client import AdminClient
from elasticd.errors import ElasticdError
from elasticd.ops.hangup import takes_hangup
from elasticd.ops.process_mark import mark_of
from tests.cli.waiting import until
from tests.settings.conftest import GOOD

pytestmark = pytest.mark.slow


def alive(pid: int) -> bool:
    return mark_of(pid) is not None


def read_until(screen: io.RawIOBase, text: bytes) -> None:
    """Reads what a terminal shows until the text is in it."""
    shown = b""
    while text not in shown:
        chunk = screen.read(4096)
        assert chunk, f"the terminal closed after {shown!r}"
        shown += chunk


class Place:
    """One state directory, and the supervisors that were started for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[subprocess.Popen[str]] = []
        (root / "machines").write_text("node-1")

    def run(
        self, *roles: str, on_stop: str = "release", stdout: int | None = None
    ) -> subprocess.Popen[str]:
        out = (self.root / "said").open("a")
        with out:
            process = subprocess.Popen(
                self._argv(on_stop, roles),
                cwd=Path(__file__).parents[2],
                stdout=out if stdout is None else stdout,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.runs.append(process)
        return process

    def exec(self, *roles: str) -> None:
        """Turns this process into such a run."""
        os.chdir(Path(__file__).parents[2])
        os.execv(sys.executable, self._argv("release", roles))

    def _argv(self, on_stop: str, roles: tuple[str, ...]) -> list[str]:
        (self.root / "elasticd.yaml").write_text(f"{GOOD}on_stop: {on_stop}\n")
        return [sys.executable, "-m", "tests.cli.stub_run", str(self.root), *roles]

    def pids(self, role: str) -> list[int]:
        path = self.root / f"{role}.pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_for(self, role: str, lives: int = 1) -> int:
        """The process of the role's n-th life, once it runs."""
        return until(lambda: self.pids(role)[lives - 1 :], f"life {lives} of {role}")[0]

    def said(self) -> str:
        return (self.root / "said").read_text()

    def wait_said(self, text: str) -> None:
        until(lambda: text in self.said(), f"the line {text!r}")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.runs:
        process.kill()
        process.wait()
    for path in tmp_path.glob("*.pids"):
        for pid in made.pids(path.stem):
            if alive(pid):
                os.killpg(pid, signal.SIGKILL)


def test_a_child_that_dies_is_started_again_and_it_is_said(place: Place) -> None:
    place.run("controller", "gateway")
    first = place.wait_for("gateway")
    os.kill(first, signal.SIGKILL)
    second = place.wait_for("gateway", lives=2)
    assert second != first
    place.wait_said("gateway was killed (SIGKILL); starting it again in 0.5 s")
    assert len(place.pids("controller")) == 1


def test_after_its_own_sigkill_it_takes_over_what_still_runs(place: Place) -> None:
    run = place.run("controller", "gateway")
    before = [place.wait_for("controller"), place.wait_for("gateway")]
    until(lambda: len(list((place.root / "state/run").glob("*.pid"))) == 2, "both marks")
    run.kill()
    run.wait()
    assert all(alive(pid) for pid in before)
    again = place.run("controller", "gateway")
    place.wait_said("controller, gateway still running from before: taken over")
    os.kill(before[1], signal.SIGKILL)
    after = place.wait_for("gateway", lives=2)
    assert place.pids("controller") == before[:1]
    again.terminate()
    assert again.wait(20) == 0
    assert not alive(before[0])
    assert not alive(after)


def test_release_gives_machines_back_before_anything_stops(place: Place) -> None:
    run = place.run("head", "controller", "gateway")
    pids = [place.wait_for(role) for role in ("head", "controller", "gateway")]
    place.wait_said("node node-1 (pool p): is up")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""
    assert "no machine is left" in place.said()
    assert not any(alive(pid) for pid in pids)
    assert not list((place.root / "state/run").glob("*.pid"))


def test_release_gives_machines_back_although_the_controller_just_died(place: Place) -> None:
    run = place.run("controller", "gateway")
    place.wait_said("node node-1 (pool p): is up")
    os.kill(place.wait_for("controller"), signal.SIGKILL)
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""


def test_keep_stops_the_processes_and_leaves_the_machines(place: Place) -> None:
    run = place.run("controller", "gateway", on_stop="keep")
    pids = [place.wait_for("controller"), place.wait_for("gateway")]
    place.wait_said("node node-1 (pool p): is up")
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == "node-1"
    assert not any(alive(pid) for pid in pids)


def test_hangup_is_handed_on_and_ends_nothing(place: Place) -> None:
    run = place.run("head", "controller", "gateway")
    pids = [place.wait_for(role) for role in ("head", "controller", "gateway")]
    place.wait_said("node node-1 (pool p): is up")
    run.send_signal(signal.SIGHUP)
    place.wait_said("configuration read again; changed: models[m]")
    until((place.root / "gateway.hangups").exists, "the gateway to be told")
    assert run.poll() is None
    assert all(alive(pid) for pid in pids)
    assert (place.root / "machines").read_text() == "node-1"


def test_a_configuration_that_is_refused_reaches_nobody(place: Place) -> None:
    run = place.run("controller", "gateway")
    place.wait_for("gateway")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "refusal").write_text("models: unknown key")
    run.send_signal(signal.SIGHUP)
    place.wait_said("configuration refused, the old one stays in force: models: unknown key")
    (place.root / "refusal").unlink()
    run.send_signal(signal.SIGHUP)
    place.wait_said("configuration read again")
    hangups = place.root / "gateway.hangups"
    until(hangups.exists, "the gateway to be told")
    assert hangups.read_text() == "again\n"


def test_what_someone_told_the_controller_alone_reaches_the_gateway_too(place: Place) -> None:
    place.run("controller", "gateway")
    place.wait_for("gateway")
    place.wait_said("node node-1 (pool p): is up")
    os.kill(place.wait_for("controller"), signal.SIGHUP)
    place.wait_said("configuration read again")
    hangups = place.root / "gateway.hangups"
    until(hangups.exists, "the gateway to be told")
    assert hangups.read_text() == "again\n"


def test_what_is_done_with_the_machines_at_the_end_can_be_changed_by_a_reload(
    place: Place,
) -> None:
    run = place.run("controller")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "elasticd.yaml").write_text(f"{GOOD}on_stop: keep\n")
    run.send_signal(signal.SIGHUP)
    place.wait_said("configuration read again")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == "node-1"


def reloads_of(place: Place) -> int:
    status = AdminClient(place.root / "state" / "run" / "admin.sock").status()
    return int(status["controller"]["reload"]["number"])


@pytest.mark.parametrize(("before", "after"), [("keep", "release"), ("release", "keep")])
def test_a_stop_right_after_a_reload_goes_by_what_the_controller_has_taken(
    place: Place, before: str, after: str
) -> None:
    run = place.run("controller", on_stop=before)
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "elasticd.yaml").write_text(f"{GOOD}on_stop: {after}\n")
    os.kill(place.wait_for("controller"), signal.SIGHUP)
    until(lambda: reloads_of(place) == 1, "the controller to read it again")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ("" if after == "release" else "node-1")


def test_a_stop_right_after_a_reload_that_was_refused_goes_by_what_held(place: Place) -> None:
    run = place.run("controller", on_stop="keep")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "refusal").write_text("no")
    (place.root / "elasticd.yaml").write_text(f"{GOOD}on_stop: release\n")
    os.kill(place.wait_for("controller"), signal.SIGHUP)
    until(lambda: reloads_of(place) == 1, "the controller to refuse it")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == "node-1"


def test_what_a_controller_has_read_at_its_restart_counts_at_a_stop(place: Place) -> None:
    run = place.run("controller", on_stop="keep")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "elasticd.yaml").write_text(f"{GOOD}on_stop: release\n")
    os.kill(place.wait_for("controller"), signal.SIGKILL)
    second = place.wait_for("controller", lives=2)
    admin = AdminClient(place.root / "state" / "run" / "admin.sock")

    def answers() -> bool:
        with contextlib.suppress(ElasticdError):
            return bool(admin.status()["controller"]["pid"] == second)
        return False

    until(answers, "the second life to answer")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""


def test_hangups_while_it_starts_and_while_it_stops_are_harmless(place: Place) -> None:
    run = place.run("controller", "gateway")
    until(lambda: takes_hangup(run.pid), "the supervisor to hear signals")
    for _ in range(5):
        run.send_signal(signal.SIGHUP)
    place.wait_said("node node-1 (pool p): is up")
    run.terminate()
    for _ in range(5):
        run.send_signal(signal.SIGHUP)
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""
    assert len(place.pids("controller")) == 1


def test_a_child_that_hangup_would_end_gets_none(place: Place) -> None:
    run = place.run("controller", "head")
    head = place.wait_for("head")
    assert not takes_hangup(head)
    place.wait_said("node node-1 (pool p): is up")
    run.send_signal(signal.SIGHUP)
    place.wait_said("configuration read again")
    assert place.pids("head") == [head]
    assert alive(head)


def test_a_terminal_that_is_closed_stops_it_in_order(place: Place) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        place.exec("controller")
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        read_until(screen, b"node node-1 (pool p): is up")
    # The last one who had the terminal open is gone: the kernel hangs up.
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (place.root / "machines").read_text() == ""


def test_machines_are_given_back_although_nobody_reads_what_it_says(place: Place) -> None:
    reading, writing = os.pipe()
    run = place.run("controller", stdout=writing)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    place.wait_for("controller")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""


def test_a_second_signal_hurries_and_still_gives_machines_back(place: Place) -> None:
    run = place.run("stubborn", "controller")
    child = place.wait_for("stubborn")
    note = place.root / "helper.pid"
    helper = int(until(lambda: note.exists() and note.read_text(), "the child's own child"))
    place.wait_said("node node-1 (pool p): is up")
    run.terminate()
    place.wait_said("no machine is left")
    run.terminate()
    assert run.wait(20) == 0
    assert (place.root / "machines").read_text() == ""
    assert not alive(child)
    assert not alive(helper)


def test_a_child_that_refuses_its_configuration_ends_the_run_with_its_words(place: Place) -> None:
    run = place.run("refusing", "gateway")
    assert run.wait(20) == 2
    assert "refusing refused to start: this configuration is not for me" in place.said()
    assert not any(alive(pid) for pid in place.pids("gateway"))


def test_a_refusal_of_several_lines_is_told_whole(place: Place) -> None:
    (place.root / "end").write_text("2 elasticd: it is damaged; run:\n    cp a b\nthen go on")
    run = place.run("controller")
    assert run.wait(20) == 2
    assert "refused to start: elasticd: it is damaged; run:\n    cp a b\nthen" in place.said()


def test_the_last_words_of_a_process_are_words_also_where_its_log_is_json(place: Place) -> None:
    (place.root / "patience").write_text("0.5")
    run = place.run("controller", "gateway")
    place.wait_said("node node-1 (pool p): is up")
    line = '{"limit": 60.0, "error": "no room", "event": "gateway stopping", "level": "info"}'
    (place.root / "end").write_text(f"1 {line}")
    os.kill(place.wait_for("controller"), signal.SIGKILL)
    place.wait_said("controller ended with code 1: gateway stopping: no room")
    run.terminate()
    run.wait(30)


def _crash_loop(place: Place) -> subprocess.Popen[str]:
    """A run whose controller has served and now ends again and again."""
    run = place.run("controller", "gateway")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "end").write_text("1 it cannot go on")
    os.kill(place.wait_for("controller"), signal.SIGKILL)
    place.wait_said("controller ended with code 1: it cannot go on")
    return run


def test_a_controller_that_only_crashes_does_not_keep_it_from_stopping(place: Place) -> None:
    (place.root / "patience").write_text("0.5")
    run = _crash_loop(place)
    run.terminate()
    assert run.wait(20) == 1
    assert "not every machine could be given back" in place.said()
    assert "`elasticd down`" in place.said()
    assert not any(alive(pid) for pid in place.pids("gateway"))


def test_a_controller_that_dies_five_times_is_not_waited_for(place: Place) -> None:
    (place.root / "patience").write_text("1000")
    (place.root / "soon").touch()
    run = _crash_loop(place)
    run.terminate()
    assert run.wait(60) == 1
    assert "the controller died 5 times" in place.said()


def test_a_second_signal_ends_it_at_once_if_no_controller_answers(place: Place) -> None:
    (place.root / "patience").write_text("1000")
    run = _crash_loop(place)
    run.terminate()
    place.wait_said("waiting for the controller to answer: no daemon answers")
    run.terminate()
    assert run.wait(20) == 1
    assert "not every machine could be given back" in place.said()
    assert "died" not in place.said()


def test_a_controller_that_begins_to_refuse_while_it_stops_is_not_waited_for(place: Place) -> None:
    run = place.run("controller", "gateway")
    place.wait_said("node node-1 (pool p): is up")
    (place.root / "end").write_text("2 the ledger cannot be opened")
    os.kill(place.wait_for("controller"), signal.SIGKILL)
    run.terminate()
    assert run.wait(20) == 1
    assert "the controller refuses to run" in place.said()
    assert not any(alive(pid) for pid in place.pids("gateway"))


def test_a_second_run_for_the_same_state_is_refused(place: Place) -> None:
    run = place.run("controller")
    place.wait_for("controller")
    second = place.run("controller")
    assert second.wait(20) == 2
    assert f"(process {run.pid})" in place.said()
    assert len(place.pids("controller")) == 1


def test_the_terminals_ctrl_c_reaches_the_supervisor_alone(place: Place) -> None:
    place.run("controller")
    child = place.wait_for("controller")
    assert os.getpgid(child) == child
    assert os.getsid(child) == child
