"""Knowing a process again: the system reuses its id, but never with the same start time.

A mark is written to a file when a child starts. Whoever comes later finds out from it whether
exactly that process still lives, and is never led to one that merely got its number.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

_STARTED_FIELD = 22
"""Start time in `/proc/PID/stat`, counted from 1 as proc(5) does; in ticks since boot."""


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """One process of one boot. `argv` is for readers: it changes when a process replaces itself."""

    pid: int
    started: int
    boot: str
    argv: tuple[str, ...] = field(compare=False)

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs (one that only waits to be reaped does not)."""
        return mark_of(self.pid) == self


def mark_of(pid: int) -> ProcessMark | None:
    """The mark of a running process; `None` when there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name in parentheses may hold spaces: fields are counted after it.
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    if state in ("Z", "X"):
        return None
    started = int(rest[_STARTED_FIELD - 4])
    return ProcessMark(pid, started, boot, tuple(argv.rstrip("\0").split("\0")))


def mark_file(run_dir: Path, name: str) -> Path:
    """Where the mark of the process of that name is."""
    return run_dir / f"{name}.pid"


def write_mark(path: Path, mark: ProcessMark) -> None:
    """Puts the mark in place as a whole."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(mark)), encoding="utf-8")
    draft.replace(path)


def read_living(path: Path) -> ProcessMark | None:
    """The process a mark file tells of, if it still lives. A damaged file tells of none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        mark = ProcessMark(data["pid"], data["started"], data["boot"], tuple(data["argv"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return mark if mark.alive else None


async def gone(pid: int) -> None:
    """Returns when the process has ended, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
