"""Real processes: nothing of an engine outlives its actor, its supervisor's order, or its node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.node import engine_supervisor
from elasticd.node.leftovers import OOM_SCORE
from tests.node.stub_smi import StubSmi
from tests.node.waiting import alive, eventually, read_pid

# An engine with a grandchild in a session of its own; both ignore SIGTERM if told to.
ENGINE = """
import os, pathlib, signal, subprocess, sys, time
folder, manner = pathlib.Path(sys.argv[1]), sys.argv[2]
stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
write = "import os, pathlib, sys, time;"
write += "pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}\\\\n');"
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = stubborn + write + "time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, str(folder / "grandchild")], start_new_session=True)
while not (folder / "grandchild").exists():
    time.sleep(0.01)
(folder / "engine").write_text(f"{os.getpid()}\\n")
print("hello\\rprogress", flush=True)
while manner == "fails":
    if (folder / "now").exists():
        sys.exit(3)
    time.sleep(0.01)
time.sleep(600)
"""


class Actor:
    """Stands where the replica actor stands: at the supervisor's pipes."""

    def __init__(self, folder: Path, manner: str, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "node-1"]
        engine = [sys.executable, "-c", ENGINE, str(folder), manner]
        options = ["--folder", str(folder / "node"), *options, "--"]
        self.pipes = subprocess.Popen(argv + options + engine, stdin=-1, stdout=-1)
        self.engine = read_pid(folder / "engine")
        self.grandchild = read_pid(folder / "grandchild")
        status = Path(f"/proc/{self.engine}/status").read_text()
        self.supervisor = int(status.split("PPid:")[1].split()[0])

    def order(self, text: str) -> None:
        assert self.pipes.stdin is not None
        self.pipes.stdin.write(text.encode())
        self.pipes.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        """Everything until the supervisor is gone."""
        assert self.pipes.stdout is not None
        return [json.loads(line) for line in self.pipes.stdout]

    def die(self) -> None:
        """As if by SIGKILL: the kernel closes the pipes."""
        assert self.pipes.stdin is not None
        self.pipes.stdin.close()

    def nothing_left(self) -> bool:
        return not any(map(alive, (self.engine, self.grandchild, self.supervisor)))


@pytest.fixture
def actors(tmp_path: Path) -> Iterator[list[Actor]]:
    made: list[Actor] = []
    yield made
    for actor in made:
        for pid in (actor.supervisor, actor.engine, actor.grandchild):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        for pipe in (actor.pipes.stdin, actor.pipes.stdout):
            assert pipe is not None
            pipe.close()
        actor.pipes.wait()


def _actor(actors: list[Actor], folder: Path, manner: str, *options: str) -> Actor:
    actors.append(Actor(folder, manner, *options))
    return actors[-1]


def test_when_the_actor_dies_everything_of_the_engine_dies(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "stubborn")
    actor.die()
    eventually(actor.nothing_left)


def test_the_supervisor_is_not_below_the_actor(actors: list[Actor], tmp_path: Path) -> None:
    actor = _actor(actors, tmp_path, "stubborn")
    status = Path(f"/proc/{actor.supervisor}/status").read_text()
    assert int(status.split("PPid:")[1].split()[0]) not in (os.getpid(), actor.pipes.pid)
    assert os.getsid(actor.supervisor) != os.getsid(0)


def test_a_stop_is_gentle_first_and_takes_the_descendants(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "obedient")
    actor.order("stop 30\n")
    assert actor.events()[-1] == {"exit": -signal.SIGTERM}
    assert not alive(actor.grandchild)


def test_an_engine_that_ignores_the_stop_is_killed_after_its_grace(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "stubborn")
    actor.order("stop 0.2\n")
    assert actor.events()[-1] == {"exit": -signal.SIGKILL}
    assert not alive(actor.engine)
    assert not alive(actor.grandchild)


def test_a_longer_grace_does_not_take_back_a_shorter_one(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "stubborn")
    actor.order("stop 0.2\nstop 600\nnonsense\nstop soon\n")
    assert actor.events()[-1] == {"exit": -signal.SIGKILL}


def test_an_engine_that_ends_by_itself_is_told_with_its_last_words(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "fails")
    (tmp_path / "now").touch()
    assert actor.events() == [{"line": "hello"}, {"line": "progress"}, {"exit": 3}]
    assert not alive(actor.grandchild)


def test_a_sweep_ends_engines_whose_supervisor_was_killed_on_this_machine_only(
    actors: list[Actor], tmp_path: Path
) -> None:
    orphaned = _actor(actors, tmp_path / "a", "stubborn")
    guarded = _actor(actors, tmp_path / "b", "stubborn")
    os.kill(orphaned.supervisor, signal.SIGKILL)
    eventually(lambda: not alive(orphaned.supervisor) and not alive(orphaned.engine))
    assert alive(orphaned.grandchild)
    assert engine_supervisor.sweep_orphans(tmp_path / "b" / "node") == 0
    assert engine_supervisor.sweep_orphans(tmp_path / "a" / "node") == 1
    assert orphaned.nothing_left()
    assert alive(guarded.engine)
    assert alive(guarded.grandchild)


def test_a_killed_engine_leaves_no_child(actors: list[Actor], tmp_path: Path) -> None:
    actor = _actor(actors, tmp_path, "stubborn")
    os.kill(actor.engine, signal.SIGKILL)
    assert actor.events()[-1] == {"exit": -signal.SIGKILL}
    assert not alive(actor.grandchild)


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "n", "--", "/no/such/engine"]
    done = subprocess.run(argv, input=b"", capture_output=True, timeout=30)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert "/no/such/engine" in events[0]["line"]
    assert events[-1] == {"exit": 127}


def _supervised(*options: str) -> subprocess.Popen[bytes]:
    """A supervisor whose engine would say that it runs."""
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "node-1", *options]
    return subprocess.Popen([*argv, "--", "sh", "-c", "echo runs; sleep 600"], stdin=-1, stdout=-1)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSmi:
    """Two GPUs; a process that is not ours computes on the second."""
    stub = StubSmi(tmp_path / "smi", gpus=2)
    stub.install(monkeypatch)
    stub.computes((os.getpid(), 1, "20480"))
    return stub


def _on_gpus(folder: Path, patience: float) -> subprocess.Popen[bytes]:
    options = ("--folder", str(folder), "--gpu", "0", "--gpu", "1", "--nvidia")
    return _supervised(*options, "--patience", str(patience))


def test_a_gpu_that_stays_held_gets_no_engine_and_is_watched_until_it_is_free(
    tmp_path: Path, smi: StubSmi
) -> None:
    with _on_gpus(tmp_path, patience=0.0) as actor:
        assert actor.stdin is not None
        assert actor.stdout is not None
        held = json.loads(actor.stdout.readline())["held"]
        assert held[0] == "GPU 0 is kept back with it"
        assert held[1].startswith(f"GPU 1 is held by pid {os.getpid()} (")
        actor.stdin.write(b"stop 0\n")  # the replica is over; its claim is not
        actor.stdin.flush()
        smi.computes()
        assert json.loads(actor.stdout.read()) == {"exit": engine_supervisor.NOT_STARTED}


def test_a_gpu_that_is_free_within_the_patience_gets_its_engine(
    tmp_path: Path, smi: StubSmi
) -> None:
    with _on_gpus(tmp_path, patience=60.0) as actor:
        assert actor.stdin is not None
        assert actor.stdout is not None
        eventually((tmp_path / "gpu-1.lock").exists)
        smi.computes()
        assert json.loads(actor.stdout.readline()) == {"line": "runs"}
        actor.stdin.close()


@pytest.mark.parametrize("word", [b"stop 30\n", b""])
def test_a_start_that_waits_for_its_gpu_can_be_stopped(
    tmp_path: Path, smi: StubSmi, word: bytes
) -> None:
    with _on_gpus(tmp_path, patience=60.0) as actor:
        eventually((tmp_path / "gpu-1.lock").exists)
        said, _ = actor.communicate(word or None, timeout=20)
        assert json.loads(said) == {"exit": engine_supervisor.NOT_STARTED}


def test_an_orphan_that_holds_the_gpu_and_ignores_sigterm_is_gone_before_the_next_engine(
    actors: list[Actor], tmp_path: Path
) -> None:
    gpu = ("--gpu", "0")
    actor = _actor(actors, tmp_path, "stubborn", *gpu)
    os.kill(actor.supervisor, signal.SIGKILL)
    eventually(lambda: not alive(actor.engine))
    assert alive(actor.grandchild)
    with _supervised("--folder", str(tmp_path / "node"), *gpu) as successor:
        assert successor.stdin is not None
        assert successor.stdout is not None
        assert json.loads(successor.stdout.readline()) == {"line": "runs"}
        assert not alive(actor.grandchild)
        successor.stdin.close()


def test_the_engine_goes_first_when_memory_runs_out(actors: list[Actor], tmp_path: Path) -> None:
    actor = _actor(actors, tmp_path, "obedient")

    def score(pid: int) -> str:
        return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()

    assert score(actor.engine) == score(actor.grandchild) == str(OOM_SCORE)
    assert score(actor.supervisor) == score(os.getpid())


def test_nothing_is_written_down_of_an_engine_that_ended_as_told(
    actors: list[Actor], tmp_path: Path
) -> None:
    actor = _actor(actors, tmp_path, "obedient")
    records = tmp_path / "node" / "engines"
    assert [path.name.split("-")[0] for path in records.iterdir()] == [str(actor.supervisor)]
    actor.order("stop 30\n")
    actor.events()
    assert list(records.iterdir()) == []
