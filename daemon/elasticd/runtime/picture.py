"""What people are told of the controller: the core's picture, with the age of what it rests on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from elasticd import __version__
from elasticd.runtime.cluster_watch import ClusterWatch
from elasticd.runtime.executor import Executor
from elasticd.runtime.ledger import Restored
from elasticd.runtime.loop_health import LoopHealth
from elasticd.runtime.ports import Clock, ControlCore
from elasticd.runtime.providers import PoolProvider


class Picture:
    """Reads; changes nothing."""

    def __init__(
        self,
        core: ControlCore,
        clock: Clock,
        restored: Restored,
        pools: Mapping[str, PoolProvider],
        ledger: Callable[[], dict[str, Any]],
    ) -> None:
        self._core = core
        self._clock = clock
        self._restored = restored
        self._pools = pools
        self._ledger = ledger
        self._started = clock.now()

    def status(
        self,
        health: LoopHealth,
        watch: ClusterWatch,
        executor: Executor,
        reload: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Everything, JSON-able."""
        now = self._clock.now()
        told = self._core.status(now)
        return {
            **told,
            "down": {"left": _left(told)} if told.get("down") else None,
            "controller": {
                "version": __version__,
                "pid": os.getpid(),
                "ledger_id": self._restored.ledger_id,
                "epoch": self._restored.epoch,
                "uptime": now - self._started,
                "in_flight": executor.in_flight,
                "reload": dict(reload),
                "ledger": self._ledger(),
                **health.summary(),
            },
            "agent": watch.summary(),
            "providers": {name: pool.health() for name, pool in self._pools.items()},
        }

    def machines(self) -> dict[str, int]:
        """Machines by pool that may still be there, orphans included."""
        told = self._core.status(self._clock.now())
        count = Counter(node["pool"] for node in told["nodes"] if node["phase"] != "gone")
        for pool in told["pools"]:
            count[pool["name"]] += len(pool["orphans"])
        return {name: number for name, number in count.items() if number}

    def waiting_for(self, health: LoopHealth, watch: ClusterWatch) -> list[str]:
        """What is missing until everything wanted is seen and served; empty: ready."""
        if not health.rounds:
            return ["the first decision"]
        if not watch.seen:
            return ["the cluster agent's first answer"]
        told = self._core.status(self._clock.now())
        if told["down"]:
            return ["a start by hand: everything is being given back"]
        waiting = []
        if not told["cluster_complete"]:
            waiting.append(f"the cluster's full state {told['cluster_detail']}".rstrip())
        waiting.extend(
            f"a replica of model {model['name']!r} to be ready"
            for model in told["models"]
            if model["wanted"] is None or (model["wanted"] > 0 and model["ready"] == 0)
        )
        return waiting


def _left(told: Mapping[str, Any]) -> int:
    """Machines that may still be paid for. A pool whose lists cannot be believed yet counts as
    one: nobody knows what is there, and that is not nothing."""
    nodes: int = sum(node["phase"] != "gone" for node in told["nodes"])
    orphans = sum(len(pool["orphans"]) for pool in told["pools"])
    unsettled = sum(bool(pool["unsettled"]) for pool in told["pools"])
    return nodes + orphans + unsettled
