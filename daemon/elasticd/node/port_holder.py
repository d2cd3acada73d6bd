"""Who listens on a port of this machine, for a message that people can act on."""

from __future__ import annotations

from pathlib import Path

from elasticd.node import process_tree

_LISTEN = "0A"


def port_holder(port: int) -> str:
    """`pid 42 (redis-server *:6379)`; without a name where the process is not ours to see."""
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for line in _lines(Path("/proc/net") / table)
        if (fields := line.split())[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    }
    if not inodes:
        return "a process of another network namespace, or one that is gone"
    pids = process_tree.socket_owners(inodes)
    if not pids:
        return "a process of another user"
    return f"pid {pids[0]} ({process_tree.command(pids[0])})"


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text().splitlines()[1:]
    except OSError:
        return []
