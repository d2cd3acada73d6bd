"""Processes of `elasticd run` that outlived it: nobody starts them again, and nobody ends them."""

from __future__ import annotations

import fcntl
from pathlib import Path

from elasticd.ops.process_mark import mark_file, read_living

_SUPERVISED = ("head", "agent", "controller", "gateway")
SUPERVISOR_LOCK = "supervisor.lock"
"""Held by the supervisor as long as it lives."""


def unattended(run_dir: Path) -> dict[str, int]:
    """Names and process ids of what runs; empty also while a supervisor looks after it."""
    try:
        living = {name: read_living(mark_file(run_dir, name)) for name in _SUPERVISED}
        pids = {name: mark.pid for name, mark in living.items() if mark is not None}
        return pids if pids and not _supervised(run_dir) else {}
    except PermissionError:
        return {}  # another user's: nothing can be said of them


def _supervised(run_dir: Path) -> bool:
    """Whether somebody holds the lock."""
    try:
        with (run_dir / SUPERVISOR_LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
