"""The way down: asks the controller to give everything back, until nothing is left.

It asks again whenever the controller has forgotten (it was restarted on the way), and "nothing is
left" is the controller's word, in which a pool that cannot be listed is not an empty one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from elasticd.ops.status_money import rent
from elasticd.ops.status_pools import foreign_machines

_FRESH = 90.0
"""Seconds by which a pool's list may be older than the way down; lists come more often."""

_SILENT = ("outage", "throttled", "auth", "billing")
"""Troubles of a pool whose machines cannot be listed."""


class Daemon(Protocol):
    """What is asked; `elasticd.cli.admin_client.AdminClient`."""

    def status(self) -> dict[str, Any]: ...

    def down(self, by: str) -> dict[str, Any]: ...


def living(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes that are still paid for, by id."""
    return {node["id"]: node for node in status["nodes"] if node["phase"] != "gone"}


class Descent:
    """`seen` are all machines there were on the way, by id, as last seen alive; `left` those that
    may still be there, in words by id or pool; `foreign` those of another ledger, which stay.

    `hopeless`: what is left belongs to pools that are no longer configured: nobody can end it.
    """

    def __init__(
        self, daemon: Daemon, by: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._daemon = daemon
        self._by = by
        self._clock = clock
        self._began = clock()
        self.seen: dict[str, dict[str, Any]] = {}
        self.left: dict[str, str] = {}
        self.foreign: list[dict[str, Any]] = []
        self.hopeless = False

    def look(self) -> str | None:
        """One look: what is still there, in words; `None` when nothing is. Raises
        `ElasticdError` when the daemon does not answer, which says nothing about what is left."""
        status = self._daemon.status()
        machines = {**living(status), **_orphans(status)}
        self.seen.update(machines)
        self.foreign = foreign_machines(status)
        self.left = {key: f"{key} {_how(machine)}" for key, machine in machines.items()}
        self.left |= dict(self._unlisted(status))
        unmanaged = {str(node["node_id"]) for node in status.get("unmanaged") or ()}
        self.hopeless = bool(self.left) and self.left.keys() <= unmanaged
        down = status.get("down")
        if not down:
            self._daemon.down(self._by)
            return "the controller to begin"
        if not self.left and down["left"]:
            self.left = {"": f"{down['left']} that the providers have not confirmed as gone"}
        return ", ".join(self.left.values()) or None

    @property
    def ended(self) -> list[dict[str, Any]]:
        """Machines that were there and are no more."""
        return [machine for key, machine in self.seen.items() if key not in self.left]

    def told_foreign(self) -> str:
        """What is not ours and stays; empty: nothing."""
        if not self.foreign:
            return ""
        one = len(self.foreign) == 1
        many = "1 machine" if one else f"{len(self.foreign)} machines"
        owners = ", ".join(sorted({str(machine.get("ledger_id")) for machine in self.foreign}))
        return (
            f"{many} of this cluster name {'belongs' if one else 'belong'} to another ledger "
            f"({owners}), cost {rent(self.foreign)} and {'was' if one else 'were'} not touched; if "
            "nobody looks after them, start elasticd, `elasticd adopt`, then `elasticd down` again"
        )

    def _unlisted(self, status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Pools of which it is not known what they have: their lists are missing or too old."""
        oldest = self._clock() - self._began + _FRESH
        for pool in status.get("pools", ()):
            name, listed = pool["name"], pool.get("listed_age")
            waits_for = str(pool.get("unsettled") or "")
            silent = any(t.get("kind") in _SILENT for t in pool.get("troubles") or ())
            if listed is None:
                yield f"pool {name}", f"the first list of pool {name}"
            elif silent or listed > oldest:
                yield f"pool {name}", f"a list of pool {name}, which does not answer"
            elif waits_for:
                yield f"pool {name}", waits_for


def _orphans(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Machines of ours that no node stands for, as if they were nodes; older controllers told ids
    alone."""
    found: dict[str, dict[str, Any]] = {}
    for pool in status.get("pools", ()):
        for orphan in pool.get("orphans") or ():
            machine = {"instance_id": orphan} if isinstance(orphan, str) else dict(orphan)
            key = str(machine["instance_id"])
            found[key] = {"id": key, "pool": pool["name"], "phase": "without a node", **machine}
    return found


def _how(node: Mapping[str, Any]) -> str:
    """Its phase, and what is in the way of its end."""
    trouble = node.get("trouble")
    return f"{node['phase']} ({trouble})" if trouble else str(node["phase"])
