"""A configuration that cannot be read hides no daemon that runs with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from elasticd.cli import noted_place as module
from elasticd.cli.noted_place import note_place, noted_place
from elasticd.cli.whereabouts import Whereabouts
from tests.cli.real_admin import Controller, elasticd, environment, serving, started
from tests.cli.samples import sample_status
from tests.cli.waiting import until

BROKEN: dict[str, bytes | None] = {
    "empty": b"",
    "vanished": None,
    "not UTF-8": b"cluster: \xff\n",
    "not YAML": b"cluster: [a\n",
    "NULs": b"\0\0\0",
    "a list": b"- cluster\n",
}


@pytest.fixture
def runtime_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "xdg").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "xdg"))
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(module, "_OF_THE_SYSTEM", tmp_path / "of-the-system")
    return tmp_path / "xdg" / "elasticd"


def broken(path: Path, content: bytes | None) -> Path:
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_commands_reach_the_daemon_and_say_that_the_file_is_broken(
    tmp_path: Path, runtime_dir: Path, content: bytes | None
) -> None:
    path = tmp_path / "elasticd.yaml"
    place = Whereabouts(tmp_path / "admin.sock", tmp_path)
    assert note_place(path, place) is not None
    broken(path, content)
    with serving(Controller(sample_status()), place.socket) as controller:
        drain, drill = ["drain", "k3f9-4-1"], ["drill", "preempt", "x"]
        for argv in (["status"], ["events"], [*drain, "--no-wait"], [*drill, "--no-wait"]):
            done = elasticd(*argv, "-c", path)
            assert done.returncode == 0
            assert "the configuration is broken; asking the daemon" in done.stderr
            assert str(path) in done.stderr
        assert len(controller.emitted) == 1


def test_without_a_note_the_problem_itself_is_told(tmp_path: Path, runtime_dir: Path) -> None:
    path = broken(tmp_path / "elasticd.yaml", b"cluster: [a\n")
    done = elasticd("status", "-c", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not YAML" in done.stderr
    assert "asking the daemon" not in done.stderr


def test_a_daemon_that_no_longer_answers_is_3_as_with_a_good_file(
    tmp_path: Path, runtime_dir: Path
) -> None:
    path = broken(tmp_path / "elasticd.yaml", b"")
    note_place(path, Whereabouts(tmp_path / "admin.sock", tmp_path))
    assert elasticd("status", "-c", path).returncode == 3


def test_a_note_is_found_however_the_file_is_named_and_is_of_that_file_alone(
    tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Whereabouts(tmp_path / "状态" / "admin.sock", tmp_path)
    note_place(tmp_path / "a.yaml", place)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("a.yaml", "link/a.yaml", "./a.yaml", "xdg/../a.yaml"):
        assert noted_place(Path(name)) == place
    assert noted_place(tmp_path / "b.yaml") is None


def test_what_others_may_have_written_or_what_is_damaged_is_not_believed(
    tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = note_place(tmp_path / "a.yaml", Whereabouts(tmp_path / "s", tmp_path))
    assert note is not None
    with monkeypatch.context() as as_another:
        as_another.setattr(os, "getuid", lambda: 4242)
        assert noted_place(tmp_path / "a.yaml") is None
    note.write_text("{")
    assert noted_place(tmp_path / "a.yaml") is None


def test_notes_of_state_directories_that_are_no_more_are_removed(
    tmp_path: Path, runtime_dir: Path
) -> None:
    note_place(tmp_path / "a.yaml", Whereabouts(tmp_path / "s", tmp_path / "gone"))
    note_place(tmp_path / "b.yaml", Whereabouts(tmp_path / "s", tmp_path))
    assert len(list(runtime_dir.iterdir())) == 1


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def running(tmp_path: Path, runtime_dir: Path) -> Iterator[Mapping[str, Path]]:
    """A real controller that has nothing to do."""
    path = tmp_path / "elasticd.yaml"
    (tmp_path / "weights").mkdir()
    path.write_text(
        f"cluster: test\nstate_dir: state\nadmin: {{listen: '127.0.0.1:{_free_port()}'}}\n"
        f"agent: {{listen: '127.0.0.1:{_free_port()}'}}\n"
        "node_pools: [{name: here, provider: local, max_nodes: 1}]\n"
        'models: [{name: m, source: "file:weights", scaling: {min_replicas: 0}}]\n'
    )
    process = started("controller", "-c", path, env=environment())
    try:
        made = tmp_path / "state" / "run" / "admin.sock"
        until(made.exists, "the admin socket", 60.0)
        yield {"config": path}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def test_a_running_controller_is_found_after_its_file_vanished_and_refuses_to_reload_it(
    running: Mapping[str, Path],
) -> None:
    path = running["config"]
    broken(path, None)
    done = elasticd("status", "-c", path)
    assert done.stdout.startswith("test ")
    assert "no such file" in done.stderr
    done = elasticd("reload", "-c", path)
    assert done.returncode == 2
    assert "the old configuration stays" in done.stderr
    os.mkfifo(path)
    done = elasticd("reload", "-c", path)
    assert done.returncode == 2
    assert "a named pipe (FIFO); the configuration must be a regular file" in done.stderr
    told = elasticd("events", "-c", path).stdout
    assert told.count("reload refused") == 2
    assert "no such file" in told
