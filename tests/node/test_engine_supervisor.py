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

    def __init__(self, folder: Path, manner: str) -> None:
        argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "node-1", "--"]
        engine = [sys.executable, "-c", ENGINE, str(folder), manner]
        self.pipes = subprocess.Popen(argv + engine, stdin=-1, stdout=-1)
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


def _actor(actors: list[Actor], folder: Path, manner: str) -> Actor:
    actors.append(Actor(folder, manner))
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


def test_a_start_sweeps_engines_whose_supervisor_was_killed(
    actors: list[Actor], tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    orphaned = _actor(actors, tmp_path / "a", "stubborn")
    guarded = _actor(actors, tmp_path / "b", "stubborn")
    os.kill(orphaned.supervisor, signal.SIGKILL)
    eventually(lambda: not alive(orphaned.supervisor) and not alive(orphaned.engine))
    assert alive(orphaned.grandchild)
    assert engine_supervisor.sweep_orphans("node-2") == 0
    assert engine_supervisor.sweep_orphans("node-1") == 1
    assert orphaned.nothing_left()
    assert alive(guarded.engine)
    assert alive(guarded.grandchild)


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "n", "--", "/no/such/engine"]
    done = subprocess.run(argv, input=b"", capture_output=True, timeout=30)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert "/no/such/engine" in events[0]["line"]
    assert events[-1] == {"exit": 127}
