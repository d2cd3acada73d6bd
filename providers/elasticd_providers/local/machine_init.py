"""Process 1 of a local machine: runs the bootstrap script and does what the control file says.

Standard library only, run by path inside the new namespaces (`python -I machine_init.py DIR`).
When it ends, the kernel kills everything in its PID namespace; so it ends when the bootstrap
script ends, when it gets SIGTERM, when the reclaim deadline passes, and when its own record is
deleted (nobody could ever end it after that). The deadline is kept here and not in the daemon,
because the market does not wait for a daemon to come back.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_POLL = 0.1
"""Seconds between looks at the control file."""
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def main(directory: Path) -> int:
    """Returns the exit status of the machine."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    os.umask(0o077)
    private_shared_memory()
    machine = json.loads((directory / "machine.json").read_bytes())
    boot_at = time.monotonic() + machine["boot_delay"]
    write_phase(directory, "booting")
    control = ControlFile(directory / "control.json")
    bootstrap: int | None = None
    while True:
        if control.overdue():
            say("reclaimed")
            return 0
        if not (directory / "machine.json").exists():
            forgotten(machine["node_dir"])
            return 0
        control.apply_hang()
        if bootstrap is None and time.monotonic() >= boot_at:
            bootstrap = start(directory / "boot.sh", machine["node_dir"])
            write_phase(directory, "running")
        if signal.SIGTERM in wait_for_signal():
            say("told to end")
            return 0
        status = reap(bootstrap)
        if status is not None:
            say(f"the bootstrap script ended with exit status {status}: the machine ends")
            return status


def forgotten(node_dir: str) -> None:
    """Somebody deleted the pool's state: what the provider would remove goes from in here."""
    say("the record of this machine is gone: the machine ends")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    os.chdir("/")
    shutil.rmtree(node_dir, ignore_errors=True)


def private_shared_memory() -> None:
    """An empty /dev/shm: engines that are killed leave their segments, which must go with us."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") != 0:
        say(f"shared memory stays the host's: {os.strerror(ctypes.get_errno())}")


def start(script: Path, node_dir: str) -> int:
    """Starts the bootstrap script in a session of its own; answers with its pid."""
    os.chdir(node_dir)
    return os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", str(script)],
        os.environ,
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )


def wait_for_signal() -> set[int]:
    """The signals that came; returns at the latest after one poll interval."""
    info = signal.sigtimedwait(_WATCHED, _POLL)
    return set() if info is None else {info.si_signo} | {int(s) for s in signal.sigpending()}


def reap(bootstrap: int | None) -> int | None:
    """Buries all that died; the bootstrap script's exit status if it was among them."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == bootstrap:
            ended = os.waitstatus_to_exitcode(status)


class ControlFile:
    """`control.json`, read again whenever it changed. It is only ever replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._kill_at: float | None = None
        self._hang = False
        self._hung = False

    def overdue(self) -> bool:
        """The machine's time is up, by the boot clock, which all processes of a host share."""
        self._read()
        return self._kill_at is not None and now() >= self._kill_at

    def apply_hang(self) -> None:
        """Stops or continues everything in the machine but this process."""
        if self._hang != self._hung:
            try:
                os.kill(-1, signal.SIGSTOP if self._hang else signal.SIGCONT)
            except ProcessLookupError:
                return  # nobody there yet: next time
            self._hung = self._hang

    def _read(self) -> None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._seen, self._kill_at, self._hang = None, None, False
            return
        if self._seen != (stat.st_ino, stat.st_mtime_ns):
            document = json.loads(self._path.read_bytes())
            self._seen = (stat.st_ino, stat.st_mtime_ns)
            self._kill_at, self._hang = document["kill_at"], document["hang"]


def now() -> float:
    """Seconds since the host booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_phase(directory: Path, phase: str) -> None:
    draft = directory / "inside.tmp"
    draft.write_text(json.dumps({"phase": phase}), encoding="utf-8")
    draft.replace(directory / "inside.json")


def say(message: str) -> None:
    """A line in the boot log, where standard error leads."""
    sys.stderr.write(f"[machine] {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
