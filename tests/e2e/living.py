"""What of a stack runs on this machine, known by the marks that processes carry.

Machines are those of the local provider; a process belongs to one when its directory stands in the
process's arguments or environment.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elasticd_providers.local.process import inside_process, outside_process
from elasticd_providers.local.records import MachineFiles, MachineRecord
from tests.e2e.stack_config import ENGINE

PARTS = ("watcher", "raylet", "actor", "engine supervisor", "engine")
"""What runs on a machine, as `Part.kind` says it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a machine. `replica_id` of engines alone."""

    kind: str
    pid: int
    node_id: str
    replica_id: str = ""


@dataclass(frozen=True, slots=True)
class Living:
    """One look; `machines` by node id."""

    machines: dict[str, MachineRecord]
    parts: tuple[Part, ...]

    @classmethod
    def look(cls, pool_dir: Path) -> Living:
        """Reads the pool's records and the process table."""
        machines = {r.node_id: r for r in _records(pool_dir / "machines")}
        return cls(machines, tuple(_parts(machines.values())))

    def nodes_with(self, kind: str) -> Counter[str]:
        """How many parts of that kind run, by node."""
        return Counter(p.node_id for p in self.parts if p.kind == kind)

    def engines(self) -> Counter[str]:
        """How many engines run, by replica; more than one of a replica are copies."""
        return Counter(p.replica_id for p in self.parts if p.kind == "engine")

    def find(self, kind: str, node_id: str) -> int | None:
        """The process id of that part of a node's machine."""
        return next((p.pid for p in self.parts if (p.kind, p.node_id) == (kind, node_id)), None)


def machine_init(pool_dir: Path, node_id: str) -> int | None:
    """The first process of a node's machine: with it dies all that is in there."""
    for record in _records(pool_dir / "machines"):
        if record.node_id == node_id:
            outside = outside_process(MachineFiles(pool_dir / "machines" / record.instance_id))
            inside = inside_process(outside) if outside is not None else None
            return inside.pid if inside is not None else None
    return None


def node_dirs(pool_dir: Path) -> set[Path]:
    """The directories of all machines that there are or that are still remembered."""
    roots = ("machines", "gone")
    return {Path(r.node_dir) for root in roots for r in _records(pool_dir / root)}


def _records(folder: Path) -> list[MachineRecord]:
    found = []
    for root in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            record = MachineFiles(root).record()
            if record is not None:
                found.append(record)
    return found


def _parts(machines: Iterable[MachineRecord]) -> Iterable[Part]:
    homes = {record.node_dir: record.node_id for record in machines}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            kind = _kind(argv)
            if not kind or (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            environ = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        text = "\0".join(argv) + environ
        for node_dir, node_id in homes.items():
            if node_dir in text:
                yield Part(kind, int(entry.name), node_id, _replica(environ))


def _kind(argv: list[str]) -> str:
    """Which part a process is by its arguments; empty: none that matters."""
    if "elasticd.node.watcher" in argv:
        return "watcher"
    if "elasticd.node.engine_supervisor" in argv:
        return "engine supervisor"
    if Path(argv[0]).name == "raylet":
        return "raylet"
    if argv[0].startswith("ray::ReplicaActor"):
        return "actor"
    return "engine" if str(ENGINE) in argv and "--" not in argv else ""


def _replica(environ: str) -> str:
    for entry in environ.split("\0"):
        name, _, value = entry.partition("=")
        if name == "ELASTICD_REPLICA":
            return str(json.loads(value)[0])
    return ""
