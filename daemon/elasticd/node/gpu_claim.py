"""A replica's GPUs, locked on this machine for as long as anything of its engine lives.

One lock file per GPU in the node's folder. The supervisor holds it until its engine is gone, and
the engine inherits the descriptor, so that an orphan which kept it keeps the lock as well. Where
the driver can be asked, a process that computes on the GPU holds it too, whoever it is.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.node import leftovers, nvidia_smi, process_tree

# So little is a monitor's context, not an engine.
NEGLIGIBLE_MIB = 256
_SUPERVISOR = "elasticd.node.engine_supervisor"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps a GPU from us. `pid` `None`: nobody can be named."""

    gpu: str
    pid: int | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that cannot be seen from here"
        return f"pid {self.pid} ({process_tree.command(self.pid)})"


@dataclass(frozen=True, slots=True)
class Driver:
    """How the driver is asked; both answer `None` when they cannot tell."""

    gpus: Callable[[], Sequence[nvidia_smi.Gpu] | None] = nvidia_smi.gpus
    apps: Callable[[], Sequence[nvidia_smi.ComputeApp] | None] = nvidia_smi.compute_apps


class GpuClaim:
    """The GPUs `gpu_ids` of the node in `folder`. `driver` `None`: there is none to ask."""

    def __init__(self, folder: Path, gpu_ids: Sequence[str], driver: Driver | None) -> None:
        self._folder = folder
        self._gpu_ids = tuple(gpu_ids)
        self._driver = driver
        self._locks: dict[str, int] = {}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the engine is to inherit."""
        return tuple(self._locks.values())

    def attempt(self) -> tuple[Holder, ...]:
        """Takes what is free, kills what earlier lives left; who still holds the rest.

        Empty: all of them are ours. Ask again after a moment, since a killed process takes a while
        to give its memory back.
        """
        process_tree.kill(leftovers.orphans(self._folder))
        held = [holder for gpu in self._gpu_ids for holder in self._lock(gpu)]
        if not held and self._driver is not None:
            held = self._computing(self._driver)
        return tuple(held)

    def sentences(self, held: Sequence[Holder]) -> list[str]:
        """One for each GPU of the claim: by whom it is held, or that it waits for the others."""
        told = []
        for gpu in self._gpu_ids:
            names = [str(holder) for holder in held if holder.gpu == gpu]
            if names:
                told.append(f"GPU {gpu} is held by {' and '.join(names[:3])}")
            else:
                told.append(f"GPU {gpu} is kept back with it")
        return told

    def _lock(self, gpu: str) -> list[Holder]:
        if gpu in self._locks:
            return []
        path = self._folder / f"gpu-{re.sub(r'[^A-Za-z0-9.-]', '_', gpu)}.lock"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return self._locked_out(gpu, path)
        self._locks[gpu] = descriptor
        return []

    @staticmethod
    def _locked_out(gpu: str, path: Path) -> list[Holder]:
        """Nobody but an engine of ours opens these files: one without a supervisor is killed."""
        pids = process_tree.holders(path)
        process_tree.kill(pid for pid in pids if not _is_guarded(pid))
        return [Holder(gpu, pid) for pid in pids[:1] or (None,)]

    def _computing(self, driver: Driver) -> list[Holder]:
        there, apps = driver.gpus(), driver.apps()
        if there is None or apps is None:
            return []  # what the driver does not tell cannot be held against anybody
        return [
            Holder(name, app.pid)
            for name in self._gpu_ids
            for gpu in there
            for app in apps
            if gpu.is_meant_by(name) and app.gpu_uuid == gpu.uuid and not _is_negligible(app)
        ]


def _is_guarded(pid: int) -> bool:
    """Whether it is an engine's supervisor, or below one: that one ends it by itself."""
    return any(_SUPERVISOR in _command_line(p) for p in (pid, *process_tree.parents(pid)))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _is_negligible(app: nvidia_smi.ComputeApp) -> bool:
    return app.used_mib is not None and app.used_mib < NEGLIGIBLE_MIB
