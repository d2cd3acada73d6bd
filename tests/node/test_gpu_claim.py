"""A GPU is given on only when nothing of its earlier life is left. Real processes and locks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.node.gpu_claim import Driver, GpuClaim, Holder
from elasticd.node.nvidia_smi import ComputeApp, Gpu
from tests.node.waiting import alive, eventually

# Keeps what it inherited, ignores SIGTERM, bears no mark and is in a session of its own.
ORPHAN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
TWO = (Gpu("0", "GPU-aa"), Gpu("1", "GPU-bb"))


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.kill()
        process.wait()


def _orphan(held: GpuClaim) -> subprocess.Popen[bytes]:
    """A process that outlives the claim it inherited."""
    orphan = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], env={}, pass_fds=held.descriptors, start_new_session=True
    )
    for descriptor in held.descriptors:
        os.close(descriptor)
    return orphan


def _claim(folder: Path, *gpus: str, driver: Driver | None = None) -> GpuClaim:
    return GpuClaim(folder, gpus, driver)


def test_two_claims_of_one_gpu_cannot_both_hold_and_other_gpus_do_not_care(tmp_path: Path) -> None:
    first = _claim(tmp_path, "0", "1")
    assert first.attempt() == ()
    assert len(first.descriptors) == 2
    assert _claim(tmp_path, "2").attempt() == ()
    held = _claim(tmp_path, "1", "3").attempt()
    assert [holder.gpu for holder in held] == ["1"]


def test_an_orphan_that_kept_the_lock_is_killed_and_then_the_gpu_is_free(tmp_path: Path) -> None:
    claim = _claim(tmp_path, "0")
    claim.attempt()
    orphan = _orphan(claim)
    again = _claim(tmp_path, "0")
    assert [holder.pid for holder in again.attempt()] == [orphan.pid]
    eventually(lambda: again.attempt() == ())
    assert orphan.wait(5) == -9


def test_the_supervisor_of_a_living_engine_is_named_and_never_killed(
    tmp_path: Path, strangers: list[subprocess.Popen[bytes]]
) -> None:
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", "node-1"]
    options = ["--folder", str(tmp_path), "--gpu", "0", "--", "sleep", "600"]
    with subprocess.Popen([*argv, *options], stdin=-1, stdout=-1) as actor:
        claim = _claim(tmp_path, "0")
        eventually(lambda: (tmp_path / "engines").exists() and any(claim.attempt()))
        (holder,) = claim.attempt()
        assert holder.pid is not None
        assert "engine_supervisor" in str(holder)
        assert alive(holder.pid)
        assert actor.stdin is not None
        actor.stdin.close()
        eventually(lambda: claim.attempt() == ())
        assert not alive(holder.pid)


def test_a_strangers_process_on_the_gpu_holds_it_and_is_left_alone(
    tmp_path: Path, strangers: list[subprocess.Popen[bytes]]
) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    strangers.append(stranger)
    apps = [ComputeApp(stranger.pid, "GPU-bb", 9000), ComputeApp(1, "GPU-aa", 9000)]
    claim = _claim(tmp_path, "1", driver=Driver(lambda: TWO, lambda: apps))
    assert claim.attempt() == (Holder("1", stranger.pid),)
    (sentence,) = claim.sentences(claim.attempt())
    assert sentence == f"GPU 1 is held by pid {stranger.pid} (sleep 600)"
    assert stranger.poll() is None
    apps.clear()
    assert claim.attempt() == ()


@pytest.mark.parametrize(("used", "holds"), [(100, False), (256, True), (None, True)])
def test_a_monitors_small_context_holds_nothing_and_unknown_use_does(
    tmp_path: Path, used: int | None, holds: bool
) -> None:
    driver = Driver(lambda: TWO, lambda: [ComputeApp(1, "GPU-aa", used)])
    assert bool(_claim(tmp_path, "0", driver=driver).attempt()) == holds


def test_every_gpu_of_a_claim_that_waits_is_spoken_of(tmp_path: Path) -> None:
    driver = Driver(lambda: TWO, lambda: [ComputeApp(1 << 30, "GPU-bb", None)])
    claim = _claim(tmp_path, "0", "1", driver=driver)
    assert claim.sentences(claim.attempt()) == [
        "GPU 0 is kept back with it",
        f"GPU 1 is held by pid {1 << 30} (gone or hidden)",
    ]


def test_gpus_named_by_uuid_are_locked_and_looked_up_too(tmp_path: Path) -> None:
    driver = Driver(lambda: TWO, lambda: [ComputeApp(1, "GPU-bb", None)])
    assert _claim(tmp_path, "GPU-aa", "MIG-x/1/0", driver=driver).attempt() == ()
    assert _claim(tmp_path, "GPU-bb", driver=driver).attempt()[0].gpu == "GPU-bb"


def test_a_driver_that_does_not_answer_holds_nothing_against_anybody(tmp_path: Path) -> None:
    assert _claim(tmp_path, "0", driver=Driver(lambda: TWO, lambda: None)).attempt() == ()
