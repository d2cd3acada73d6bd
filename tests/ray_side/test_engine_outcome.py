"""An engine's end is told with its cause, and with what memory had to do with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node.host_memory import Host
from elasticd.ray_side.engine_outcome import MemoryKiller, cause_of_end

TAIL = ("loading", "last words", "")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path, tmp_path / "none")
    _has(made, available=90, kills=4)
    return made


def _has(host: Host, available: int, kills: int) -> None:
    """Of a hundred MiB; the memory killer has struck so often since the boot."""
    meminfo = f"MemTotal: {100 << 10} kB\nMemAvailable: {available << 10} kB\n"
    (host.proc / "meminfo").write_text(meminfo)
    (host.proc / "vmstat").write_text(f"oom_kill {kills}\n")


def test_an_engine_that_the_memory_killer_took_is_told_as_such(host: Host) -> None:
    """Also if it took one of its processes, and the engine ended over that."""
    killer = MemoryKiller.watching(host)
    _has(host, available=60, kills=5)
    for code, how in ((-9, "SIGKILL"), (1, "exit 1")):
        cause = cause_of_end(code, TAIL, killer)
        assert f"{how}: the kernel ended it for want of host memory" in cause
        assert cause.endswith("last words")


def test_a_kill_while_memory_is_short_is_told_as_probably_that(host: Host) -> None:
    killer = MemoryKiller.watching(host)
    _has(host, available=2, kills=4)
    assert "killed, probably for want of host memory" in cause_of_end(-9, TAIL, killer)
    assert "memory" not in cause_of_end(1, TAIL, killer)


def test_any_other_end_says_nothing_of_memory(host: Host) -> None:
    killer = MemoryKiller.watching(host)
    for code, name in ((-9, "SIGKILL"), (-15, "SIGTERM")):
        assert cause_of_end(code, TAIL, killer) == (
            f"the engine was killed ({name}); it had printed last: last words"
        ), "what it printed last is not why"
    assert cause_of_end(3, (), killer) == "the engine ended by itself (exit 3): it printed nothing"
    assert "supervisor was killed; it had" in cause_of_end(None, TAIL, killer)


def test_a_count_that_was_not_known_proves_nothing(host: Host) -> None:
    (host.proc / "vmstat").unlink()
    killer = MemoryKiller.watching(host)
    _has(host, available=60, kills=5)
    assert "memory" not in cause_of_end(-9, TAIL, killer)
