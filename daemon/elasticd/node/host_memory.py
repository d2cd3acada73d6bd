"""How much memory this machine has left, and whether the kernel has killed for want of it.

Linux, standard library only. A container's limit counts as the machine's. What cannot be read is
`None`, which holds nothing up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FLOOR_SHARE = 0.05
# Of weights larger than the machine's memory the engine maps a part at a time.
WEIGHTS_SHARE = 0.5
# Share of time in which *every* process waits for memory; from a tenth on nothing loads any more.
HIGH_PRESSURE = 10.0
_GIB = 1024.0**3
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes. `pressure`: percent of the last ten seconds in which all work stood still."""

    limit: int
    available: int
    pressure: float | None = None

    def shortage(self, weights: int | None) -> str:
        """Why an engine had better wait, for people; empty: it need not.

        `weights` is what it will read into memory, `None` where that is not known.
        """
        needed = max(self.limit * FLOOR_SHARE, min(weights or 0, self.limit * WEIGHTS_SHARE))
        if self.available < needed:
            return f"{self.available / _GIB:.1f} GiB available, {needed / _GIB:.1f} GiB needed"
        if self.pressure is not None and self.pressure > HIGH_PRESSURE:
            return f"processes stand still for it {self.pressure:.0f} % of the time"
        return ""

    def __str__(self) -> str:
        return f"{self.available / _GIB:.1f} of {self.limit / _GIB:.1f} GiB available"


@dataclass(frozen=True, slots=True)
class Host:
    """Where the kernel tells."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")

    def memory(self) -> Memory | None:
        """The tightest of the machine's memory and the limits that this process is under."""
        text = _read(self.proc / "meminfo")
        total, free = (_number(rf"^{name}:\s+(\d+)", text) for name in ("MemTotal", "MemAvailable"))
        if total is None or free is None:
            return None
        limit, available = total * 1024, free * 1024
        for bound, used in self._cgroup_limits():
            limit, available = min(limit, bound), min(available, max(0, bound - used))
        return Memory(limit, available, self._pressure())

    def memory_kills(self) -> int | None:
        """How often the memory killer has struck: in our group if that is told, else here."""
        for group in self._groups("memory"):
            for name in ("memory.events", "memory.oom_control"):
                killed = _number(r"^oom_kill (\d+)", _read(group / name))
                if killed is not None:
                    return killed
        return _number(r"^oom_kill (\d+)", _read(self.proc / "vmstat"))

    def _pressure(self) -> float | None:
        found = re.search(r"^full avg10=([\d.]+)", _read(self.proc / "pressure" / "memory"), re.M)
        return float(found[1]) if found else None

    def _cgroup_limits(self) -> Iterator[tuple[int, int]]:
        """Limit and use, without what can be dropped at once, of our group and those above it."""
        for group in self._groups("memory"):
            for limit, used, cache in (
                ("memory.max", "memory.current", "inactive_file"),
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            ):
                bound, use = (_number(r"^(\d+)$", _read(group / name)) for name in (limit, used))
                if bound is not None and use is not None and bound < _UNLIMITED:
                    dropped = _number(rf"^{cache} (\d+)", _read(group / "memory.stat"))
                    yield bound, use - (dropped or 0)

    def _groups(self, controller: str) -> Iterator[Path]:
        """Our control group of either version, then all above it."""
        for line in _read(self.proc / "self" / "cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root = self.cgroup / controller if controllers else self.cgroup
            here = root / path.lstrip("/")
            # In a container the path may be the host's, and the root what we are under.
            yield from [here, *here.parents][: len(here.parts) - len(root.parts) + 1]


def weights_size(directory: str) -> int | None:
    """Bytes of the weights in a model directory; `None` where there are none to be seen."""
    kinds = {".safetensors", ".bin", ".pt", ".pth", ".gguf"}
    try:
        sizes = [f.stat().st_size for f in Path(directory).iterdir() if f.suffix in kinds]
    except OSError:
        return None
    return sum(sizes) or None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.M)
    return int(found[1]) if found else None
