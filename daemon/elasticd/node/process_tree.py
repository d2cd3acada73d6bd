"""Processes below us: found, marked, and ended to the last one. Linux, standard library only.

A child may start a session of its own, ignore SIGTERM, or outlive its parent. As subreaper we
inherit such orphans, so "everything below me" stays complete until nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PF_EXITING = 0x4
_LIBC = ctypes.CDLL(None, use_errno=True)
_POLL = 0.01


def become_subreaper() -> None:
    """From now on orphaned descendants become our children instead of init's."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn`: the kernel kills the child when the *thread* that starts it ends.

    Use it from the main thread only.
    """
    parent = os.getpid()

    def in_child() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    return in_child


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; with the pid it names one process.

    `None`: there is no such process, or it is over: a zombie, or on its way there (it has closed
    its descriptors, so that others may see its end before the process table does).
    """
    fields = _stat_fields(pid)
    if not fields or fields[0] in "ZX" or int(fields[6]) & _PF_EXITING:
        return None
    return int(fields[19])


def descendants(root: int) -> list[int]:
    """Living and zombie processes below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        fields = _stat_fields(pid)
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def marked(name: str, accept: Callable[[str], bool]) -> list[int]:
    """Processes, other than this one, whose environment holds `name` with an accepted value.

    Empty where /proc is not that of our own PID namespace: its ids would hit strangers.
    """
    if not _proc_is_ours():
        return []
    prefix = f"{name}=".encode()
    found = []
    for pid in _all_pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix) and accept(
                    entry[len(prefix) :].decode(errors="replace")
                ):
                    found.append(pid)
                    break
    return found


def sweep(name: str, accept: Callable[[str], bool], within: float = 10.0) -> int:
    """Kills all marked processes (see `marked`) until none is left; how many there were.

    Raises `TimeoutError` if some are still there after `within` seconds.
    """
    seen: set[int] = set()
    deadline = time.monotonic() + within
    while left := [pid for pid in marked(name, accept) if start_time(pid) is not None]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} of an earlier life do not end; end them by hand")
        seen.update(left)
        _kill(left)
        time.sleep(_POLL)
    return len(seen)


def kill_descendants() -> None:
    """Kills everything below this process once, and reaps nothing."""
    _kill(descendants(os.getpid()))


def end_descendants(within: float = 30.0) -> bool:
    """Kills and reaps everything below this process; false if something still stands at the end.

    Only complete in a subreaper.
    """
    deadline = time.monotonic() + within
    while True:
        kill_descendants()
        if not _reap_any():
            return True
        if time.monotonic() > deadline:
            print(f"elasticd: {descendants(os.getpid())} do not end", file=sys.stderr, flush=True)
            return False
        time.sleep(_POLL)


def reap_orphans(own: int) -> None:
    """Reaps finished children that were inherited, leaving the exit status of child `own`."""
    with contextlib.suppress(ChildProcessError):
        while done := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if done.si_pid == own:
                return
            os.waitpid(done.si_pid, 0)


def _reap_any() -> bool:
    """Reaps what has finished; true while children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _proc_is_ours() -> bool:
    try:
        return int(Path("/proc/self").readlink().name) == os.getpid()
    except (OSError, ValueError):
        return False


def _all_pids() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return text[text.rindex(")") + 2 :].split()
