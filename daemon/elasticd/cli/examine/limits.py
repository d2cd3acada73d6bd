"""What the system grants: shared memory, open files, a clock that is right."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from elasticd.cli.examine.finding import Finding, fail, ok, warn

_GIB = 1024**3
_LEAST_SHM = 1 * _GIB
_ENOUGH_FILES = 8192
_LEAST_FILES = 1024
_LONG_AGO = 1_704_067_200.0
"""2024: a clock before it has lost its battery, not its accuracy."""

_TIMEDATECTL_TIMEOUT = 5.0


def examine(last_recorded: float | None) -> Iterator[Finding]:
    """`last_recorded`: the last time in the ledger, seconds since 1970."""
    yield shared_memory(Path("/dev/shm"))  # noqa: S108 - that is the one that Ray and vLLM use
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield open_files(soft)
    yield clock(time.time(), last_recorded)
    yield _synchronised()


def shared_memory(folder: Path) -> Finding:
    """Ray's object store and vLLM's tensor parallelism live there."""
    try:
        usage = os.statvfs(folder)
    except OSError as bad:
        text = f"{folder}: {bad.strerror}"
        return fail("shared memory", text, "mount a tmpfs there; in a container: --shm-size=8g")
    size, free = (usage.f_frsize * blocks for blocks in (usage.f_blocks, usage.f_bavail))
    told = f"{folder} has {size / _GIB:.1f} GiB, {free / _GIB:.1f} GiB free"
    if free < _LEAST_SHM:
        advice = "enlarge it (`mount -o remount,size=8G /dev/shm`; in a container: --shm-size=8g)"
        return warn("shared memory", f"{told}: engines with several GPUs need more", advice)
    return ok("shared memory", told)


def open_files(limit: int) -> Finding:
    """Each request holds two connections, each Ray process hundreds of files."""
    told = f"{limit} files may be open (ulimit -n)"
    advice = "raise it: LimitNOFILE=65536 in the unit, or `ulimit -n 65536` in the shell"
    if limit == resource.RLIM_INFINITY:
        return ok("open files", "any number of files may be open (ulimit -n)")
    if limit < _LEAST_FILES:
        return fail("open files", f"{told}, which Ray does not start with", advice)
    if limit < _ENOUGH_FILES:
        return warn("open files", f"{told}: too few for many streams at once", advice)
    return ok("open files", told)


def clock(now: float, last_recorded: float | None) -> Finding:
    """Time must not have gone back: deadlines and the journal count on it."""
    if now < _LONG_AGO:
        return fail("clock", f"it says {time.ctime(now)}", "set it, and let NTP keep it")
    if last_recorded is not None and last_recorded > now + 1.0:
        return warn(
            "clock",
            f"it is {last_recorded - now:.0f} s behind the ledger's last entry: it was set back",
            "let NTP keep it; until it has caught up, ages are too short",
        )
    return ok("clock", f"it says {time.strftime('%Y-%m-%d %H:%M:%S %Z', time.localtime(now))}")


def _synchronised() -> Finding:
    program = shutil.which("timedatectl")
    answer = ""
    if program:
        try:
            answer = subprocess.run(
                [program, "show", "--property=NTPSynchronized", "--value"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEDATECTL_TIMEOUT,
                check=False,
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            answer = ""
    if answer == "yes":
        return ok("clock", "kept by NTP")
    if answer == "no":
        advice = (
            "`timedatectl set-ntp true`, or start chrony: providers refuse calls of a wrong clock"
        )
        return warn("clock", "not kept by NTP", advice)
    return ok("clock", "whether NTP keeps it is not known here (no timedatectl that answers)")
