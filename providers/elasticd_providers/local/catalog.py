"""What this pool rents out: one machine type in each zone, and the host's GPUs behind it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from elasticd.provider import Market, NoCapacity, Offering, PoolContext, Rejected
from elasticd_providers.local.environment import visible_devices
from elasticd_providers.local.options import LocalOptions
from elasticd_providers.local.switches import Switches

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The real GPUs of this host, all of one kind, as many as the operator's mask leaves.

    `memory_mib` is the memory of one of them, `masked` how many of any the mask leaves; `None`
    where that is not known, or where there is no mask.
    """

    count: int
    kind: str
    memory_mib: int | None = None
    masked: int | None = None


def host_gpus(environ: Mapping[str, str]) -> HostGpus:
    """Asks the NVIDIA driver; a host without it has none."""
    found = _found()
    mask = visible_devices(environ)
    if mask is None:
        return found
    return replace(found, count=min(found.count, len(mask)), masked=len(mask))


def _found() -> HostGpus:
    if shutil.which("nvidia-smi") is not None:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        rows = [line.rpartition(",") for line in asked.stdout.splitlines() if line.strip()]
        if asked.returncode == 0 and rows:
            name, _, memory = rows[0]
            kind = name.strip().removeprefix("NVIDIA ").strip()
            return HostGpus(len(rows), kind, int(memory) if memory.strip().isdigit() else None)
    devices = [d for d in Path("/dev").glob("nvidia*") if d.name[6:].isdigit()]
    return HostGpus(len(devices), "nvidia")


class Catalog:
    """The offerings of a pool, and the choice among those of a request."""

    def __init__(self, context: PoolContext, options: LocalOptions, real: HostGpus) -> None:
        self._context = context
        self._options = options
        self._shares_real_gpus = options.gpus == "auto" and real.count > 0
        if self._shares_real_gpus:
            self._gpu_count, kind = real.count, real.kind
        else:
            self._gpu_count = options.gpus if isinstance(options.gpus, int) else 1
            kind = SIMULATED
            if real.masked and self._gpu_count > real.masked:
                raise Rejected(
                    f"pool {context.pool}: gpus: {self._gpu_count}, but CUDA_VISIBLE_DEVICES "
                    f"leaves {real.masked} on this host; declare fewer, or unset it"
                )
        self._gpu_memory_mib = real.memory_mib if self._shares_real_gpus else None
        self._gpu_kind = options.gpu_kind or kind
        if context.accelerators and self._gpu_kind not in context.accelerators:
            raise Rejected(
                f"pool {context.pool}: accelerators {list(context.accelerators)} leave nothing to "
                f"rent; machines of this host have {self._gpu_kind!r} (settable: gpu_kind)"
            )

    @property
    def declared_gpus(self) -> int | None:
        """What a machine declares to have; `None` where it finds the real ones itself."""
        return None if self._shares_real_gpus else self._gpu_count

    @property
    def boot_delay(self) -> float:
        """Seconds, unless the switches say otherwise."""
        return self._options.boot_delay

    @property
    def _limit(self) -> int:
        """Two machines cannot both have the host's real GPUs."""
        return 1 if self._shares_real_gpus else self._options.max_machines

    @cached_property
    def _all(self) -> tuple[Offering, ...]:
        micros, currency = self._options.price
        return tuple(
            Offering(
                pool=self._context.pool,
                zone=zone,
                machine_type=f"local-{self._gpu_count}x{self._gpu_kind}".replace(" ", "-"),
                gpu_kind=self._gpu_kind,
                gpu_count=self._gpu_count,
                market=self._context.market or Market.SPOT,
                price_micros=micros,
                currency=currency,
                gpu_memory_mib=self._gpu_memory_mib,
            )
            for zone in self._options.zones
        )

    def offerings(self, switches: Switches, *, machines: int) -> list[Offering]:
        """All of them, as available as the switches and the number of living machines allow."""
        room = machines < self._limit
        return [
            replace(offering, available=room and not switches.sold_out(offering.zone))
            for offering in self._all
        ]

    def choose(
        self, wanted: tuple[Offering, ...], switches: Switches, *, machines: int
    ) -> Offering:
        """The first of `wanted` that is to be had. `Rejected`: none of them is ours at all."""
        ours = {o.id: o for o in self.offerings(switches, machines=machines)}
        known = [ours[offering.id] for offering in wanted if offering.id in ours]
        if not known:
            raise Rejected(
                f"pool {self._context.pool}: none of the offerings {[o.id for o in wanted]} is "
                f"rented here; there are {sorted(ours)}"
            )
        for offering in known:
            if offering.available:
                return offering
        if machines >= self._limit:
            why = f"{machines} of {self._limit} machines are in use"
        else:
            why = f"zones {sorted({o.zone for o in known})} are sold out"
        raise NoCapacity(f"pool {self._context.pool}: {why}")
