"""Waiting for a condition with a deadline, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], object], within: float = 20.0) -> None:
    """Returns once `condition` is true; fails the test after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {condition}"
        time.sleep(0.02)


def stays(condition: Callable[[], object], seconds: float) -> None:
    """Returns if `condition` holds all the time for so long; fails the test once it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"no longer: {condition}"
        time.sleep(0.1)


def alive(pid: int) -> bool:
    """Whether the process runs: there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def read_pid(path: Path) -> int:
    """The pid that a test's process writes into `path`, once it has."""
    eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())
