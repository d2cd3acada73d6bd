"""What an engine leaves when its supervisor is killed is known again, and nothing else is."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.node import process_tree
from elasticd.node.leftovers import MARKER, OOM_SCORE, EngineSession, end_orphans, orphans
from tests.node.waiting import alive, eventually, read_pid

# A session leader with two members: one with what is left when a process of an engine has renamed
# itself (no mark in the environment, but the score), one that is somebody else's. The leader ends.
LEADER = """
import pathlib, subprocess, sys
folder, score = pathlib.Path(sys.argv[1]), sys.argv[2]
become = "echo $0 > /proc/self/oom_score_adj; exec sleep 600"
for name, words in (("renamed", ["sh", "-c", become, score]), ("other", ["sleep", "600"])):
    member = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"})
    (folder / name).write_text(f"{member.pid}\\n")
print("there", flush=True)
sys.stdin.read()
"""


@dataclasses.dataclass
class Session:
    record: EngineSession
    renamed: int
    other: int


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session whose leader and supervisor are dead."""
    argv = [sys.executable, "-c", LEADER, str(tmp_path), str(OOM_SCORE)]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, start_new_session=True) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        record = EngineSession.of(leader.pid)
    dead = dataclasses.replace(record, supervisor_started=1)
    made = Session(dead, read_pid(tmp_path / "renamed"), read_pid(tmp_path / "other"))
    eventually(lambda: process_tree.oom_score(made.renamed) == OOM_SCORE)
    yield made
    for pid in (made.renamed, made.other):
        if alive(pid):
            os.kill(pid, 9)


def test_processes_that_lost_their_mark_are_known_by_their_session(
    session: Session, tmp_path: Path
) -> None:
    path = session.record.save(tmp_path)
    assert orphans(tmp_path) == {session.renamed}
    assert end_orphans(tmp_path) == 1
    assert not alive(session.renamed)
    assert not path.exists()


def test_a_process_with_neither_mark_nor_score_is_somebody_elses(
    session: Session, tmp_path: Path
) -> None:
    session.record.save(tmp_path)
    end_orphans(tmp_path)
    assert alive(session.other)


def test_the_session_of_a_living_supervisor_is_its_own_business(
    session: Session, tmp_path: Path
) -> None:
    me = process_tree.start_time(os.getpid())
    path = dataclasses.replace(session.record, supervisor_started=me).save(tmp_path)
    assert orphans(tmp_path) == set()
    assert end_orphans(tmp_path) == 0
    assert path.exists()


def running(env: dict[str, str], *, start_new_session: bool = False) -> subprocess.Popen[bytes]:
    """A process that has given a sign: just after its start its environment cannot be read yet."""
    process = subprocess.Popen(
        ["/bin/cat"],
        env=env,
        start_new_session=start_new_session,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    assert process.stdout.read(1) == b"x"
    return process


@pytest.mark.parametrize("change", [{"world": "another boot"}, {"session_started": 7}])
def test_numbers_from_another_boot_or_used_again_hit_nobody(
    tmp_path: Path, change: dict[str, object]
) -> None:
    env = {MARKER: f"{tmp_path / 'elsewhere'}:1:7"}
    with running(env, start_new_session=True) as stranger:
        try:
            record = dataclasses.replace(EngineSession.of(stranger.pid), supervisor_started=1)
            record.save(tmp_path)
            assert orphans(tmp_path) == {stranger.pid}
            dataclasses.replace(record, **change).save(tmp_path)  # type: ignore[arg-type]
            assert orphans(tmp_path) == set()
        finally:
            stranger.kill()


def test_the_mark_is_of_one_machine_and_one_supervisor(tmp_path: Path) -> None:
    env = {MARKER: f"{tmp_path}:1:7"}
    with running(env) as marked:
        try:
            assert orphans(tmp_path / "other") == set()
            assert orphans(tmp_path) == {marked.pid}
        finally:
            marked.kill()


def test_a_record_that_cannot_be_read_stops_nothing(session: Session, tmp_path: Path) -> None:
    session.record.save(tmp_path)
    (tmp_path / "engines" / "9-9").write_text("{")
    (tmp_path / "engines" / "8-8").write_text('{"an": "older one"}')
    assert end_orphans(tmp_path) == 1
