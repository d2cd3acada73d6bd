"""Keeps a second controller out of a state directory.

The kernel drops the lock with the process, however it ends: a stale lock file means nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticd.errors import ElasticdError


class StateDirInUse(ElasticdError):
    """Another controller holds this state directory."""


class StateLock:
    """Held from construction until `release`; the file names the holder for people."""

    def __init__(self, state_dir: Path) -> None:
        path = state_dir / "controller.lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise StateDirInUse(
                f"another controller (pid {holder}) uses {state_dir}; "
                "stop it first, or give this one a state_dir of its own"
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            self.release()  # or the next try, in this process, would find it taken by nobody
            raise

    def release(self) -> None:
        """Lets the next one in. The file stays: removing it would let two hold "the" lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
