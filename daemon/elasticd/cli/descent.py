"""The way down: asks the controller to give everything back, until nothing is left.

It asks again whenever the controller has forgotten (it was restarted on the way), and "nothing is
left" is the controller's word, in which a pool that could not be listed is not an empty one.
"""

from __future__ import annotations

from typing import Any, Protocol


class Daemon(Protocol):
    """What is asked; `elasticd.cli.admin_client.AdminClient`."""

    def status(self) -> dict[str, Any]: ...

    def down(self, by: str) -> dict[str, Any]: ...


def living(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes that are still paid for, by id."""
    return {node["id"]: node for node in status["nodes"] if node["phase"] != "gone"}


class Descent:
    """`seen` are all nodes there were on the way, by id, as last seen alive."""

    def __init__(self, daemon: Daemon, by: str) -> None:
        self._daemon = daemon
        self._by = by
        self.seen: dict[str, dict[str, Any]] = {}

    def look(self) -> str | None:
        """One look: what is still there, in words; `None` when nothing is. Raises
        `ElasticdError` when the daemon does not answer, which says nothing about what is left."""
        status = self._daemon.status()
        left = living(status)
        self.seen.update(left)
        down = status.get("down")
        if not down:
            self._daemon.down(self._by)
            return "the controller to begin"
        if down["left"] == 0 and not left:
            return None
        names = ", ".join(f"{node['id']} {_how(node)}" for node in left.values())
        return names or f"{down['left']} that the providers have not confirmed as gone"


def _how(node: dict[str, Any]) -> str:
    """Its phase, and what is in the way of its end."""
    trouble = node.get("trouble")
    return f"{node['phase']} ({trouble})" if trouble else str(node["phase"])
