"""Namespaces on this host: making one, asking whether anything of it lives, killing all of it.

A process id is only trusted together with the start time of its process: ids are used again.
Blocking; needs util-linux (`unshare`, `setsid`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticd_providers.local.records import MachineFiles

_INIT = Path(__file__).with_name("machine_init.py")
_RECORD_AND_EXEC = """\
read -r line < /proc/self/stat && printf '%s\\n' "$line" > "$1.tmp" && mv "$1.tmp" "$1" || exit 70
shift
exec "$@"
"""
"""Writes down who we are, then becomes `unshare`: pid and start time stay the same."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this host. `started` is in clock ticks since boot."""

    pid: int
    started: int

    def lives(self) -> bool:
        """Running, or stopped; a zombie does not live."""
        stat = _stat(self.pid)
        return stat is not None and stat.started == self.started and stat.state not in "ZX"

    def kill(self) -> None:
        """SIGKILL, but never to another process that has got the same pid."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.lives():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    state: str
    parent: int
    started: int


def spawn(files: MachineFiles, environment: Mapping[str, str], lock: int) -> None:
    """Starts a machine that is nobody's child and belongs to no session or process group of ours.

    `lock` is the locked descriptor of `files.lock`: the machine inherits it, so that the lock
    is held for as long as it lives, whatever becomes of us, from this moment on.
    """
    arguments = ["setsid", "--fork", "/bin/sh", "-c", _RECORD_AND_EXEC, "machine"]
    arguments += [str(files.outside), "unshare"]
    arguments += ["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc"]
    if os.geteuid() != 0:
        arguments += ["--user", "--map-root-user"]
    arguments += ["--", sys.executable, "-I", str(_INIT), str(files.root)]
    with files.log.open("ab") as log:
        subprocess.run(
            arguments,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )


def missing_tools() -> list[str]:
    """Programs that a machine needs and this host lacks."""
    return [tool for tool in ("setsid", "unshare") if shutil.which(tool) is None]


@contextmanager
def exclusively(path: Path) -> Iterator[int]:
    """Waits for the lock on `path` and holds it meanwhile (or longer, by an heir)."""
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def locked(path: Path) -> bool:
    """Whether anybody holds the lock on `path`."""
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def outside_process(files: MachineFiles) -> ProcessIdentity | None:
    """The process that made the namespaces and waits for their init."""
    try:
        stat = _parse_stat(files.outside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return ProcessIdentity(stat.pid, stat.started)


def inside_process(outside: ProcessIdentity) -> ProcessIdentity | None:
    """The machine's init, by its process id out here."""
    if not outside.lives():
        return None
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and stat.parent == outside.pid:
                return ProcessIdentity(stat.pid, stat.started)
    return None


def alive(files: MachineFiles) -> bool:
    """Whether anything of the machine may still run.

    The kernel frees the lock a moment before it has killed the rest of the namespace, so the
    processes are looked at too: an init is dead only after everybody in its namespace is.
    """
    if not files.root.is_dir():
        return False
    if locked(files.lock):
        return True
    outside = outside_process(files)
    return outside is not None and outside.lives()


def kill(files: MachineFiles, patience: float) -> bool:
    """Kills the machine with everything in it; whether nothing is left after `patience` seconds."""
    deadline = time.monotonic() + patience
    while alive(files):
        outside = outside_process(files)
        if outside is not None:
            inside = inside_process(outside)
            (inside or outside).kill()
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _stat(pid: int) -> _Stat | None:
    try:
        return _parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def _parse_stat(line: str) -> _Stat:
    """Fields 1, 3, 4 and 22; the name (field 2) may hold blanks and brackets."""
    fields = line.rpartition(")")[2].split()
    return _Stat(int(line.split(" ", 1)[0]), fields[0], int(fields[1]), int(fields[19]))
