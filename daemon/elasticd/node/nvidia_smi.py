"""What the NVIDIA driver says about this machine, asked through nvidia-smi. Standard library only.

`None` means that nobody knows: the program is absent, fails, or hangs. It is never "no GPUs".
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device; a visibility variable may name it either way."""

    index: str
    uuid: str

    def is_meant_by(self, name: str) -> bool:
        """Whether `name` is its index or its UUID, which CUDA lets people shorten."""
        return name == self.index or (name.startswith("GPU-") and self.uuid.startswith(name))


@dataclass(frozen=True, slots=True)
class ComputeApp:
    """A process that computes on a device. `used_mib` `None`: the driver does not tell."""

    pid: int
    gpu_uuid: str
    used_mib: int | None


def gpus() -> tuple[Gpu, ...] | None:
    """All devices of this machine."""
    rows = _query("--query-gpu=index,uuid")
    if rows is None:
        return None
    return tuple(Gpu(row[0], row[1]) for row in rows if len(row) == 2)


def compute_apps() -> tuple[ComputeApp, ...] | None:
    """All processes that compute on any device."""
    rows = _query("--query-compute-apps=pid,gpu_uuid,used_memory")
    if rows is None:
        return None
    return tuple(
        ComputeApp(int(row[0]), row[1], int(row[2]) if row[2].isdigit() else None)
        for row in rows
        if len(row) == 3 and row[0].isdigit()
    )


def _query(what: str) -> list[Sequence[str]] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        listing = subprocess.run(
            [program, what, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return [[word.strip() for word in line.split(",")] for line in listing.splitlines() if line]
