"""A preemption drill: takes a node's machine away through its provider, as its market would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.core.events import DrillRequested
from elasticd.ops.admin_ports import DrillRefused
from elasticd.provider import InstanceNotFound, ProviderError
from elasticd.runtime.ports import Clock, ControlCore, Emit
from elasticd.runtime.providers import CannotReclaim, PoolProvider


class Drill:
    """Finds the node by id, or by the beginning of its id where only one begins so.

    Who asked is told to the loop before the machine is: `emit` may refuse.
    """

    def __init__(
        self, core: ControlCore, clock: Clock, pools: Mapping[str, PoolProvider], emit: Emit
    ) -> None:
        self._core = core
        self._clock = clock
        self._pools = pools
        self._emit = emit

    async def preempt(self, node_id: str, notice: float | None, by: str) -> dict[str, Any]:
        """Says what was taken; `already`: an earlier notice holds, with `notice` seconds left.

        Raises `DrillRefused`.
        """
        node = self._find(node_id)
        instance_id, pool = node["instance_id"], self._pools.get(node["pool"])
        if instance_id is None:
            raise DrillRefused(409, f"node {node['id']} has no machine yet ({node['phase']})")
        if pool is None:
            raise DrillRefused(409, f"node {node['id']}: pool {node['pool']!r} is not configured")
        self._emit(DrillRequested(node["id"], notice, by))
        try:
            await pool.reclaim(instance_id, notice)
        except (CannotReclaim, InstanceNotFound) as cannot:
            raise DrillRefused(409, str(cannot)) from cannot
        except ProviderError as failed:
            raise DrillRefused(502, str(failed)) from failed
        told = node["seconds_left"]
        already = told is not None and notice is not None and told < notice
        return {
            "node_id": node["id"],
            "instance_id": instance_id,
            "pool": node["pool"],
            "notice": told if already else notice,
            "already": already,
        }

    def _find(self, node_id: str) -> Mapping[str, Any]:
        nodes: list[Mapping[str, Any]]
        nodes = [n for n in self._core.status(self._clock.now())["nodes"] if n["phase"] != "gone"]
        exact = [node for node in nodes if node["id"] == node_id]
        found = exact or [node for node in nodes if node["id"].startswith(node_id)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(node["id"] for node in found)
            raise DrillRefused(409, f"{node_id!r} may be any of {names}; give more of the id")
        known = ", ".join(node["id"] for node in nodes) or "none"
        raise DrillRefused(404, f"no node {node_id!r}; nodes there are: {known}")
