"""This host as the vendor: `cloud.json` is its wire, and namespaces are its books."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from elasticd.provider import PoolContext, Provider
from elasticd_providers.local import PLUGIN, LocalOptions, LocalProvider, process
from elasticd_providers.local.records import MachineFiles
from elasticd_providers.local.switches import FILE_NAME, write_switches
from tests.conformance.subject import CannotProvoke, Machine, Subject, Trouble
from tests.providers.harness import why_no_namespaces

ZONES = ("zone-a", "zone-b")

_SWITCHES: dict[Trouble, dict[str, Any]] = {
    Trouble.SOLD_OUT: {"out_of_capacity": True},
    Trouble.FIRST_SOLD_OUT: {"out_of_capacity": [ZONES[0]]},
    Trouble.ANSWER_LOST: {"hang": "after"},
    Trouble.HANGING: {"hang": True},
    Trouble.NO_QUOTA: {"launch_error": "QuotaExceeded"},
    Trouble.CANNOT_PAY: {"launch_error": "BillingBlocked"},
    Trouble.TOO_EXPENSIVE: {"launch_error": "PriceTooHigh"},
    Trouble.INVALID: {"launch_error": "Rejected"},
    Trouble.IN_CONFLICT: {"launch_error": "Unavailable"},
}

_NO_WIRE = "there is no wire to this host, so nothing can be wrong with it"
_CANNOT: dict[Trouble, str] = {
    Trouble.LIST_LAG: "a machine is in the list before its launch is answered",
    Trouble.NOT_FOUND_YET: "a machine is found as soon as it is there",
    Trouble.LATE_DELIVERY: "a machine is there before its launch is answered, or never",
    Trouble.NOTHING_DELIVERED: "a launch makes a machine or says why not",
    Trouble.LATE_AFTER_ERROR: "a launch that fails has left nothing",
    Trouble.DELIVERED_UNTOLD: "a launch makes a machine and tells of it, or says why not",
    Trouble.DELIVERED_TWICE: "a machine is named after its node, so there is one",
    Trouble.UNKNOWN_STATE: "the states of machines are our own",
    Trouble.LISTED_TWICE: "a machine is a directory, and a name is there once",
    Trouble.THROTTLED: "this host lets everybody ask as often as they like",
    Trouble.BAD_CREDENTIALS: "this host asks for no credentials",
}


class LocalSubject(Subject):
    """Machines are real namespaces."""

    def __init__(self) -> None:
        self._root = Path()
        self._mend: list[Callable[[], None]] = []

    def unusable(self) -> str | None:
        why = why_no_namespaces()
        return why and f"no new PID namespaces here: {why}"

    def begin(self, folder: Path) -> None:
        self._root = folder

    def provider(self, *, cluster: str, ledger: str, pool: str) -> Provider:
        state_dir = self._root / pool
        state_dir.mkdir(mode=0o700, exist_ok=True)
        options = LocalOptions.model_validate({"gpus": 1, "zones": ZONES, "max_machines": 16})
        made = PLUGIN.create(PoolContext(pool, cluster, ledger, state_dir), options)
        assert isinstance(made, LocalProvider)
        return made

    async def machines(self) -> list[Machine]:
        return await asyncio.to_thread(self._living)

    async def provoke(self, trouble: Trouble) -> None:
        if trouble in _CANNOT:
            raise CannotProvoke(_CANNOT[trouble])
        if trouble in _SWITCHES:
            for pool in self._pools():
                write_switches(pool, **_SWITCHES[trouble])
        elif trouble is Trouble.BROKEN:
            for pool in self._pools():
                (pool / FILE_NAME).write_bytes(b"{")
        elif trouble in (Trouble.CUT_SHORT, Trouble.ENTRY_BROKEN):
            content = b'{"instance_id": ' if trouble is Trouble.CUT_SHORT else b"{}"
            self._overwrite(sorted(self._root.glob("*/machines/*/machine.json")), content)
        else:
            raise CannotProvoke(_NO_WIRE)

    async def heal(self) -> None:
        for pool in self._pools():
            write_switches(pool)
        while self._mend:
            self._mend.pop()()

    async def bootstrap_of(self, instance_id: str) -> str:
        (script,) = self._root.glob(f"*/machines/{instance_id}/boot.sh")
        return script.read_bytes().decode()

    async def give_notice(self, instance_id: str, seconds: float) -> None:
        async with aclosing(self._provider_of(instance_id)) as provider:
            await provider.reclaim(instance_id, seconds)

    async def withdraw_notice(self, instance_id: str) -> None:
        async with aclosing(self._provider_of(instance_id)) as provider:
            await provider.withdraw(instance_id)

    def _pools(self) -> list[Path]:
        return [child for child in self._root.iterdir() if (child / "machines").is_dir()]

    def _living(self) -> list[Machine]:
        roots = [MachineFiles(root) for root in sorted(self._root.glob("*/machines/*"))]
        found = [(files.root.name, files.record()) for files in roots if process.alive(files)]
        return [Machine(name, record.node_id) for name, record in found if record is not None]

    def _provider_of(self, instance_id: str) -> LocalProvider:
        (root,) = self._root.glob(f"*/machines/{instance_id}")
        made = self.provider(cluster="any", ledger="any", pool=root.parents[1].name)
        assert isinstance(made, LocalProvider)
        return made

    def _overwrite(self, paths: list[Path], content: bytes) -> None:
        for path in paths:
            if path.exists():
                self._mend.append(partial(_mend, path, path.read_bytes()))
            path.write_bytes(content)


def _mend(path: Path, before: bytes) -> None:
    """As it was; of a machine that has been ended meanwhile, what nobody could find is removed."""
    if path.parent.exists():
        path.write_bytes(before)
    else:
        shutil.rmtree(json.loads(before)["node_dir"], ignore_errors=True)
