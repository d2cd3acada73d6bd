"""Runs the bootstrap script of each machine, each in a process group of its own.

Its environment names its own
directory and, since no machine here has real GPUs, how many it declares.

A machine that ends takes its group with it. The processes outlive a killed site: their ids lie in
files, with the time at which they started, so that the next site ends them and no stranger that
got the same id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.machines import Machine

_LOOK_EVERY = 0.1
"""Seconds between two looks at which machines live."""
_LOG_TAIL = 8 * 1024
_NOTE_AND_RUN = 'read -r stat < /proc/$$/stat; echo "$stat" > process; exec /bin/sh boot.sh'
"""The process notes itself before it does anything, so that no kill of ours can make it unknown."""


class Bootstraps:
    """The processes behind the machines of one cloud."""

    def __init__(self, cloud: Cloud, root: Path) -> None:
        self._cloud = cloud
        self._root = root
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def run(self) -> None:
        """Starts and ends processes as machines come and go, for ever."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_EVERY)

    def look(self) -> None:
        """Brings the processes in line with the machines, and the boot logs up to date."""
        now = self._cloud.now
        for machine in self._cloud.machines():
            files = self._root / machine.id
            if machine.costs(now) and not files.exists():
                self._start(machine, files)
            elif not machine.costs(now) and (files / "process").exists():
                self._end(machine.id)
            if (files / "boot.log").exists():
                machine.printed = _tail(files / "boot.log")

    def end_all(self) -> None:
        """Ends every process."""
        for files in sorted(self._root.iterdir()):
            self._end(files.name)

    def _start(self, machine: Machine, files: Path) -> None:
        files.mkdir(mode=0o700)
        (files / "boot.sh").write_text(machine.bootstrap, encoding="utf-8")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(files),
            "FAKE_MACHINE_ID": machine.id,
            "ELASTICD_NODE_DIR": str(files),
            "ELASTICD_DECLARED_GPUS": str(machine.gpu_count),
        }
        with (files / "boot.log").open("ab") as log:
            self._children[machine.id] = subprocess.Popen(
                ["/bin/sh", "-c", _NOTE_AND_RUN],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=files,
                env=environment,
                start_new_session=True,
            )

    def _end(self, machine_id: str) -> None:
        """Kills the group, once it can be known."""
        child = self._children.pop(machine_id, None)
        record = self._root / machine_id / "process"
        if child is not None:
            _kill_group(child.pid)
            child.wait()
        elif record.exists():
            pid, started = _parse(record.read_text(encoding="utf-8", errors="replace"))
            # An id is not given out again while its group lives: no process means ours or nobody.
            if _started(pid) in ("", started):
                _kill_group(pid)
        record.unlink(missing_ok=True)


def _kill_group(pid: int) -> None:
    # Not there: everything in it has ended by itself.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _parse(stat: str) -> tuple[int, str]:
    """The id of a process and when it began, in the kernel's ticks."""
    return int(stat.split(" ", 1)[0]), stat.rpartition(")")[2].split()[19]


def _started(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty where there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return _parse(line)[1]


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return file.read().decode(errors="replace").splitlines()
