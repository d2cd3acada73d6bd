"""`ray start` of one node: in turn with the others of this host, and tried again.

Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from elasticd.node import process_tree
from elasticd.node.agent_link import Reporter
from elasticd.node.machine import Failed

START_TRIES = 3
START_TIMEOUT = 120.0
_UP = "Ray runtime started"


class RayNotStarted(Failed):
    """All tries failed; the message says how the last one did."""


def start_ray(
    command: Sequence[str], environment: Mapping[str, str], reporter: Reporter
) -> subprocess.Popen[str]:
    """Starts Ray, one node at a time on this host: started together, some time out.

    Raises `RayNotStarted`.
    """
    for attempt in range(1, START_TRIES + 1):
        reporter.phase("waiting for another node's start")
        with _host_wide_turn():
            reporter.phase("starting ray")
            ray = _RayStart(command, environment, reporter)
            problem = ray.wait_until_up()
        if problem is None:
            return ray.process
        last = next((line for line in reversed(reporter.tail) if line.strip()), "no output")
        reporter.say(f"ray start, try {attempt}: {problem}")
        process_tree.end_descendants()
    raise RayNotStarted(f"ray did not start in {START_TRIES} tries: {problem}; last line: {last}")


class _RayStart:
    """One `ray start --block`, its output read by a thread."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], reporter: Reporter
    ) -> None:
        self._settled = threading.Event()
        self._up = False
        self._reporter = reporter
        self.process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=process_tree.die_with_parent(),
        )
        threading.Thread(target=self._read, name="ray-output", daemon=True).start()

    def wait_until_up(self) -> str | None:
        """`None`, or what went wrong."""
        if not self._settled.wait(START_TIMEOUT):
            return f"not up after {START_TIMEOUT:.0f} s"
        return None if self._up else f"ended with exit {self.process.wait()}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            print(line, end="", flush=True)
            self._reporter.line(line.rstrip("\n"))
            if _UP in line:
                self._up = True
                self._settled.set()
        self._settled.set()


@contextlib.contextmanager
def _host_wide_turn() -> Iterator[None]:
    """One holder at a time among this user's watchers that share a file system."""
    path = Path(tempfile.gettempdir()) / f"elasticd-{os.getuid()}-ray-start.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
