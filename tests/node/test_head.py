"""The managed head with a stub in place of Ray: what it starts, and what it never leaves."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from elasticd.cluster_secret import ClusterSecret
from elasticd.node import ray_env
from tests.node.programs import Program, program
from tests.node.waiting import alive, eventually

MODULE = "elasticd.node.head"


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])


def _args(folder: Path, port: int) -> tuple[str, ...]:
    return ("--state-dir", str(folder / "state"), "--port", str(port))


def test_it_ends_clean_on_sigterm_with_everything_below(tmp_path: Path, port: int) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        ray, child = head.ray, head.rays_child
        head.process.terminate()
        assert head.process.wait(20) == 0
        assert not alive(ray)
        assert not alive(child)


def test_ray_gets_the_store_the_token_and_the_long_patience(tmp_path: Path, port: int) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        assert head.ray
        call = head.calls()[0]
    state = tmp_path / "state"
    assert call["env"]["RAY_AUTH_MODE"] == "token"
    assert call["env"]["RAY_gcs_storage"] == "rocksdb"
    assert call["env"]["RAY_gcs_storage_path"].startswith(str(state))
    assert call["env"]["RAY_gcs_rpc_server_reconnect_timeout_s"] == "3600"
    token_file = Path(call["env"]["RAY_AUTH_TOKEN_PATH"])
    assert token_file.read_text() == ClusterSecret.load_or_create(state).ray_token
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert {"--head", "--block", str(port)} <= set(call["argv"])
    assert not any(token_file.read_text() in word for word in call["argv"])


def test_killed_it_takes_ray_along_and_its_next_life_sweeps_the_rest(
    tmp_path: Path, port: int
) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        ray, child = head.ray, head.rays_child
        head.process.send_signal(signal.SIGKILL)
        eventually(lambda: not alive(ray))
        assert alive(child)
    (tmp_path / "ray").unlink()
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as again:
        assert again.ray
        assert not alive(child)
        assert "ended 1 processes of an earlier life" in again.said()


def test_a_sweep_leaves_other_heads_alone(tmp_path: Path, port: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with program(tmp_path / "a", MODULE, *_args(tmp_path / "a", port)) as other:
        child = other.rays_child
        with program(tmp_path / "b", MODULE, *_args(tmp_path / "b", port)) as head:
            assert head.ray
            assert alive(child)


def test_a_second_head_of_one_state_directory_refuses(tmp_path: Path, port: int) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as first:
        ray = first.ray
        with program(tmp_path, MODULE, *_args(tmp_path, port)) as second:
            assert second.process.wait(20) == 1
        assert "a head already runs" in first.said()
        assert alive(ray)


def test_a_strangers_port_is_one_message_and_the_stranger_lives(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("0.0.0.0", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
            assert head.process.wait(20) == 1
        assert f"port {port} is not free" in head.said()
        assert f"pid {os.getpid()} (" in head.said()
        assert "Traceback" not in head.said()
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_it_ends_with_an_error_when_ray_ends(tmp_path: Path, port: int) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        child = head.rays_child
        os.kill(head.ray, signal.SIGKILL)
        assert head.process.wait(20) == 1
        assert "ended by itself" in head.said()
        assert not alive(child)


def test_what_ray_takes_for_a_living_head_is_removed(tmp_path: Path, port: int) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        temp_dir = _temp_dir(head)
        head.process.kill()
    assert len(str(temp_dir)) <= 40
    (temp_dir / "ray_current_cluster").write_text("10.0.0.1:6379")
    (tmp_path / "ray").unlink()
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as again:
        assert again.ray
        assert not (temp_dir / "ray_current_cluster").exists()


def test_an_orderly_end_leaves_nothing_outside_of_the_state_directory(
    tmp_path: Path, port: int
) -> None:
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        temp_dir = _temp_dir(head)
        (temp_dir / "session_2030-01-01").mkdir()
        assert tmp_path not in temp_dir.parents
    assert head.process.returncode == 0
    assert not temp_dir.exists()


def test_logs_of_the_last_lives_are_kept_and_older_ones_are_not(tmp_path: Path) -> None:
    folder = ray_env.short_temp_dir(tmp_path)
    assert folder != tmp_path
    for day in range(4):
        session = folder / f"session_2030-01-0{day}"
        session.mkdir(parents=True)
        os.utime(session, (day, day))
    ray_env.short_temp_dir(tmp_path)
    assert sorted(path.name[-1] for path in folder.glob("session_*")) == ["2", "3"]
    ray_env.remove_stand_in(folder, tmp_path)
    assert not folder.exists()
    assert tmp_path.exists()


def test_an_environment_made_for_another_ray_does_not_reach_ours(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_REDIS_ADDRESS", "10.0.0.1:6379")
    with program(tmp_path, MODULE, *_args(tmp_path, port)) as head:
        assert head.ray
        environment = head.calls()[0]["env"]
    assert not {"RAY_ADDRESS", "RAY_REDIS_ADDRESS"} & set(environment)


def _temp_dir(head: Program) -> Path:
    assert head.ray
    argv = head.calls()[0]["argv"]
    return Path(argv[argv.index("--temp-dir") + 1])
