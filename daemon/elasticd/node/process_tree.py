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
    return [
        pid
        for pid in _all_pids()
        if pid != os.getpid() and (value := (environment(pid) or {}).get(name)) and accept(value)
    ]


def environment(pid: int) -> dict[str, str] | None:
    """The environment a process was started with, as far as it is still there: by renaming itself
    a process overwrites the beginning. `None` if it is gone or not to be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def oom_score(pid: int) -> int | None:
    """How gladly the kernel's memory killer takes it; inherited, and kept by renaming."""
    try:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    except (OSError, ValueError):
        return None


def session(number: int) -> list[int]:
    """All processes of a session, whoever their parents are now."""
    if not _proc_is_ours():
        return []
    return [
        pid for pid in _all_pids() if (fields := _stat_fields(pid)) and int(fields[3]) == number
    ]


def parents(pid: int) -> list[int]:
    """Parent, grandparent, and so on up to the first process."""
    found: list[int] = []
    while (fields := _stat_fields(pid)) and (pid := int(fields[1])):
        found.append(pid)
    return found


def holders(file: Path) -> list[int]:
    """Processes, other than this one, that have `file` open."""
    wanted = file.stat()
    return [
        pid
        for pid in _all_pids()
        if pid != os.getpid() and any(_same_file(fd, wanted) for fd in _descriptors(pid))
    ]


def socket_owners(inodes: Iterable[str]) -> list[int]:
    """Processes that have one of these sockets open."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return [pid for pid in _all_pids() if any(_target(fd) in wanted for fd in _descriptors(pid))]


def command(pid: int) -> str:
    """What a process is, for people: its program's name and arguments, at most 80 characters.

    Without the program's folder: a deep one would leave no room for what tells it from others.
    """
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        text = (line.strip() or Path(f"/proc/{pid}/comm").read_bytes()).decode(errors="replace")
    except OSError:
        return "gone or hidden"
    program, space, arguments = text.strip().partition(" ")
    text = f"{program.rpartition('/')[2] or program}{space}{arguments}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def sweep(name: str, accept: Callable[[str], bool], within: float = 10.0) -> int:
    """Kills all marked processes (see `marked`) until none is left; how many there were.

    Raises `TimeoutError` if some are still there after `within` seconds.
    """
    return kill_until_gone(
        lambda: {pid for pid in marked(name, accept) if start_time(pid) is not None}, within
    )


def kill_until_gone(find: Callable[[], set[int]], within: float) -> int:
    """Kills what `find` finds until it finds nothing; how many there were.

    Raises `TimeoutError` if some are still there after `within` seconds.
    """
    seen: set[int] = set()
    deadline = time.monotonic() + within
    while left := find():
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"processes {sorted(left)} of an earlier life do not end; end them by hand"
            )
        seen.update(left)
        kill(left)
        time.sleep(_POLL)
    return len(seen)


def kill_descendants() -> None:
    """Kills everything below this process once, and reaps nothing."""
    kill(descendants(os.getpid()))


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


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each; one that is gone already is no error."""
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


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _same_file(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        found = descriptor.stat()
    except OSError:
        return False
    return (found.st_ino, found.st_dev) == (wanted.st_ino, wanted.st_dev)


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return text[text.rindex(")") + 2 :].split()
