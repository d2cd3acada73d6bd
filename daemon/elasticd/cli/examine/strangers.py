"""Somebody else's Ray or Redis on this host, and variables that would lead ours astray."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from elasticd.cli.examine.finding import Finding, ok, warn
from elasticd.node import process_tree

_PROGRAMS = {"raylet": "Ray", "gcs_server": "Ray", "redis-server": "Redis"}
_OURS = ("ELASTICD_HEAD", "ELASTICD_NODE_DIR", "ELASTICD_NODE_ID")
_DANGEROUS = {
    "RAY_ADDRESS": "programs that start Ray would join that cluster",
    "RAY_NAMESPACE": "replicas would be looked for in another namespace",
    "RAY_AUTH_MODE": "elasticd sets its own for what it starts",
}


def examine(
    proc: Path = Path("/proc"), environ: Mapping[str, str] = os.environ
) -> Iterator[Finding]:
    """Processes of others by the kind of program, then variables."""
    found = list(_strangers(proc))
    for kind, pid, what in found:
        yield warn(
            "neighbours",
            f"another {kind} runs here: process {pid} ({what})",
            "elasticd leaves it alone; give ours ports of its own (ray.port) and never run "
            "`ray stop` on this host, which ends both",
        )
    if not found:
        yield ok("neighbours", "no other Ray or Redis on this host")
    stray = sorted(name for name in environ if name.startswith("RAY_"))
    for name in stray:
        why = _DANGEROUS.get(name, "it changes how every Ray process here behaves, ours too")
        yield warn("variables", f"{name} is set: {why}", f"unset {name} where elasticd is started")
    if not stray:
        yield ok("variables", "no RAY_… variable is set")


def _strangers(proc: Path) -> Iterator[tuple[str, int, str]]:
    for entry in sorted(proc.iterdir(), key=lambda path: path.name):
        if not entry.name.isdecimal():
            continue
        try:
            program = (entry / "cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace")
            name = (entry / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
        # Redis rewrites its command line to `redis-server *:6379`.
        word = program.split(" ", 1)[0].rsplit("/", 1)[-1]
        kind = _PROGRAMS.get(word) or _PROGRAMS.get(name)
        if kind is not None and not _is_ours(entry):
            yield kind, int(entry.name), program.split(" ", 1)[0] or name


def _is_ours(entry: Path) -> bool:
    """What we start carries a mark, or sits in a machine of ours."""
    if str(entry.parent) != "/proc":
        return _marked((entry / "environ").read_bytes() if (entry / "environ").exists() else b"")
    environment = process_tree.environment(int(entry.name))
    return environment is not None and any(name in environment for name in _OURS)


def _marked(block: bytes) -> bool:
    return any(f"{name}=".encode() in block for name in _OURS)
