"""The way down: asks the controller to give everything back, until nothing is left.

It asks again whenever the controller has forgotten (it was restarted on the way), and "nothing is
left" is the controller's word, in which a pool that cannot be listed is not an empty one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from elasticd.ops.durations import age
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
    """`seen` are all machines there were on the way, by id, as last seen alive; `left` what may
    still be there, in words that stand for themselves, by a machine's id or `pool NAME`; `foreign`
    those of another ledger, which stay.

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
        """One look: what is waited for, as the end of a sentence; `None` when nothing is left.
        Raises `ElasticdError` when the daemon does not answer, which says nothing about what is."""
        status = self._daemon.status()
        machines = {**living(status), **_orphans(status)}
        self.seen.update(machines)
        self.foreign = foreign_machines(status)
        self.left = {key: _told(key, machine) for key, machine in machines.items()}
        pools = dict(self._unlisted(status))
        self.left |= {name: f"what {name} has: {why}" for name, (_, why) in pools.items()}
        unmanaged = {str(node["node_id"]) for node in status.get("unmanaged") or ()}
        self.hopeless = bool(self.left) and self.left.keys() <= unmanaged
        down = status.get("down")
        if not down:
            self._daemon.down(self._by)
            return "the controller to begin giving everything back"
        if not self.left and down["left"]:
            one = down["left"] == 1
            gone = f"that {'it is' if one else 'they are'} gone"
            self.left = {"": f"{_many(down['left'])} of which no provider has said {gone}"}
            return f"the providers to say of {_many(down['left'])} {gone}"
        ends = ", ".join(self.left[key] for key in machines)
        first = [f"{_many(len(machines))} to end: {ends}"] if machines else []
        return "; and for ".join((*first, *(waits for waits, _ in pools.values()))) or None

    @property
    def ended(self) -> list[dict[str, Any]]:
        """Machines that were there and are no more."""
        return [machine for key, machine in self.seen.items() if key not in self.left]

    def told_foreign(self) -> str:
        """What is not ours and stays; empty: nothing."""
        if not self.foreign:
            return ""
        one, many = len(self.foreign) == 1, _many(len(self.foreign))
        owners = ", ".join(sorted({_owner(machine) for machine in self.foreign}))
        return (
            f"{many} of this cluster name {'belongs' if one else 'belong'} to another ledger "
            f"({owners}), cost {rent(self.foreign)} and {'was' if one else 'were'} not touched; if "
            "nobody looks after them, start elasticd, `elasticd adopt`, then `elasticd down` again"
        )

    def _unlisted(self, status: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
        """Pools of which it is not known what they have: what is waited for, and why."""
        oldest = self._clock() - self._began + _FRESH
        for pool in status.get("pools", ()):
            name, listed = f"pool {pool['name']}", pool.get("listed_age")
            waits_for = str(pool.get("unsettled") or "")
            silent = [t for t in pool.get("troubles") or () if t.get("kind") in _SILENT]
            if listed is None:
                error = str(pool.get("last_error") or "its provider has not listed it yet")
                yield name, (f"the provider of {name} to say what it has ({error})", error)
            elif silent or listed > oldest:
                why = f"its provider does not answer{_cause(silent)}"
                waits = f"the provider of {name} to answer{_cause(silent)}"
                yield name, (f"{waits}: what it has is not known", why)
            elif waits_for:
                yield (
                    name,
                    (
                        f"{waits_for}, to be sure that nothing is left there",
                        f"not certain before {waits_for}",
                    ),
                )


def _cause(troubles: Sequence[Mapping[str, Any]]) -> str:
    text = next((str(t["text"]) for t in troubles if t.get("text")), "")
    return f" ({text})" if text else ""


def _owner(machine: Mapping[str, Any]) -> str:
    ledger_id = str(machine.get("ledger_id"))
    if not ledger_id.endswith("+rival"):
        return ledger_id
    return f"{ledger_id}: another elasticd that rents under an id which is known here"


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


_TIME = re.compile(r"(?<![\w-])(?:\d+(?:\.\d+)? ?(?:ms|s|m|h|d))+\b")


def gist(waits: str) -> str:
    """What is waited for, without times that pass: only what has changed is worth a new line."""
    return _TIME.sub("…", waits)


def _told(key: str, machine: Mapping[str, Any]) -> str:
    """A machine with its pool, its phase, and what is in the way of its end."""
    trouble, left = machine.get("trouble"), machine.get("seconds_left")
    how = str(machine["phase"])
    if machine["phase"] == "without a node" and left is not None:
        how += f", ended in {age(left)}" if left > 0 else ", asked to end"
    return f"{key} (pool {machine.get('pool') or '?'}, {how}{f': {trouble}' if trouble else ''})"


def _many(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
