"""How many GPUs this machine shows now: the driver may be late, and Ray counts only once.

Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.node import nvidia_smi


class BadMask(Exception):
    """The environment contradicts itself; the message says where."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`why` says where the missing ones may be, as far as can be told."""

    count: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class GpuCount:
    """Reads the GPUs of one machine, those that its mask hides left out.

    `declared` GPUs exist in our books only; `late` seconds after `born` they appear (to play a
    machine whose driver takes its time).
    """

    environ: Mapping[str, str]
    declared: int | None
    late: float = 0.0
    clock: Callable[[], float] = time.monotonic
    born: float = field(default_factory=time.monotonic)
    devices: Path = Path("/dev")

    def __call__(self) -> Seen:
        if self.declared is not None:
            there = self.clock() - self.born >= self.late
            return Seen(self.declared if there else 0)
        if self.environ.get("ASCEND_RT_VISIBLE_DEVICES") is not None or self._davinci():
            return Seen(self._unmasked("ASCEND_RT_VISIBLE_DEVICES", self._davinci()))
        return self._nvidia()

    def _nvidia(self) -> Seen:
        found = nvidia_smi.gpus()
        if found is None:
            return Seen(0, "nvidia-smi is not there or does not answer")
        mask = mask_of(self.environ, "CUDA_VISIBLE_DEVICES")
        if mask is None:
            return Seen(len(found))
        named = [name for name in mask if any(gpu.is_meant_by(name) for gpu in found)]
        return Seen(len(named), f"CUDA_VISIBLE_DEVICES={','.join(mask)} masks the others")

    def _davinci(self) -> int:
        return sum(device.name[7:].isdigit() for device in self.devices.glob("davinci*"))

    def _unmasked(self, variable: str, there: int) -> int:
        mask = mask_of(self.environ, variable)
        return there if mask is None else min(there, len(mask))


def mask_of(environ: Mapping[str, str], variable: str) -> list[str] | None:
    """The devices that a visibility variable leaves; `None`: it masks nothing."""
    value = environ.get(variable)
    if value is None:
        return None
    return [name for word in value.split(",") if (name := word.strip()) not in ("", "NoDevFiles")]


def check_mask(environ: Mapping[str, str], declared: int | None) -> None:
    """Ray refuses to start where more GPUs are declared than the mask leaves. Raises `BadMask`."""
    mask = mask_of(environ, "CUDA_VISIBLE_DEVICES")
    if declared is not None and mask is not None and declared > len(mask):
        raise BadMask(
            f"{declared} GPUs are declared, but CUDA_VISIBLE_DEVICES="
            f"{environ['CUDA_VISIBLE_DEVICES']!r} leaves {len(mask)}; declare fewer, or unset it"
        )
