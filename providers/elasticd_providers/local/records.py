"""A machine's files: what was launched, how it is doing, what it is told.

```
machines/<instance_id>/  machine.json   the intent, written before anything starts (MachineRecord)
                         alive.lock     locked for as long as the machine lives
                         outside        one line of /proc/<pid>/stat: the process outside
                         inside.json    the phase, written by the machine's init
                         control.json   what the init is told: kill_at, notice_id, hang
                         boot.sh boot.log
gone/<instance_id>/      machine.json boot.log of machines that are no more (the last few)
```
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.provider import Market, Offering


class Illegible(ValueError):
    """A file of a machine does not hold what we wrote. The message names it."""


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """What a machine is; never changes. `launched_at` is the wall clock in seconds.

    `gpus_after`: seconds from the boot until declared GPUs appear, `None`: they never do.
    """

    instance_id: str
    node_id: str
    ledger_id: str
    cluster: str
    offering: Offering
    node_dir: str
    boot_delay: float
    declared_gpus: int | None
    launched_at: float
    gpus_after: float | None = 0.0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"v": 1}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> MachineRecord:
        # Machines outlive upgrades: what an older record does not say has its default.
        names = [field.name for field in dataclasses.fields(cls) if field.name in document]
        values = {name: document[name] for name in names}
        offering = dict(values["offering"])
        offering["market"] = Market(offering["market"])
        values["offering"] = Offering(**offering)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Control:
    """What the init of a machine is told. `kill_at` counts by the host's boot clock, in seconds."""

    kill_at: float | None = None
    notice_id: str | None = None
    hang: bool = False


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """The directory of one machine."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "alive.lock"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def bootstrap(self) -> Path:
        return self.root / "boot.sh"

    @property
    def log(self) -> Path:
        return self.root / "boot.log"

    def record(self) -> MachineRecord | None:
        """What was launched here; `None` where the intent was never written down completely.

        Raises `Illegible`.
        """
        path = self.root / "machine.json"
        document = read_json(path)
        try:
            return None if document is None else MachineRecord.from_json(document)
        except (LookupError, TypeError, ValueError) as bad:
            raise Illegible(f"{path} is not the record of a machine: {bad!r}") from bad

    def write_record(self, record: MachineRecord) -> None:
        write_json(self.root / "machine.json", record.to_json())

    def phase(self) -> str | None:
        """`booting` or `running` as the init says; `None` before it has said anything."""
        document = read_json(self._inside)
        return None if document is None else str(document.get("phase"))

    def spoke(self) -> bool:
        """Whether the machine ever came up."""
        return self._inside.exists()

    @property
    def _inside(self) -> Path:
        return self.root / "inside.json"

    def control(self) -> Control:
        path = self.root / "control.json"
        try:
            return Control(**(read_json(path) or {}))
        except TypeError as bad:
            raise Illegible(f"{path} is not what a machine is told: {bad}") from bad

    def write_control(self, control: Control) -> None:
        write_json(self.root / "control.json", dataclasses.asdict(control))

    def log_tail(self, size: int = 2000) -> str:
        """The end of the boot log, at most `size` bytes, for people."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - size))
                return log.read(size).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, or `None` where there is no such file. Raises `Illegible`."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as bad:
        raise Illegible(f"{path} is not JSON: {bad}") from bad
    if not isinstance(document, dict):
        raise Illegible(f"{path} does not hold an object")
    return document


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Whole or not at all, and on the disk before it returns."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
