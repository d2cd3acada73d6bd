"""A Ray cluster in memory: the agent's `Cluster`, with faults that a test switches on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from elasticd.agent_api.messages import ReplicaOrder, ReplicaReport
from elasticd.ray_side.cluster import ActorGone, ActorSilent, HeadAway, RayNode
from elasticd.ray_side.names import actor_name


def order(replica_id: str = "r-1", incarnation: int = 1, **more: Any) -> ReplicaOrder:
    """A valid order."""
    values: dict[str, Any] = {
        "replica_id": replica_id,
        "incarnation": incarnation,
        "node_id": "n-1",
        "model": "m",
        "spec_hash": "h",
        "gpus": 1,
        "model_path": "/models/m",
        "engine_kind": "vllm",
        "key": "the-engine-key",
        "host": "127.0.0.1",
    }
    return ReplicaOrder(**{**values, **more})


def report(replica_id: str = "r-1", incarnation: int = 1, **more: Any) -> ReplicaReport:
    """What an actor of `order` says."""
    values: dict[str, Any] = {"node_id": "n-1", "model": "m", "spec_hash": "h", "phase": "ready"}
    return ReplicaReport(replica_id=replica_id, incarnation=incarnation, **{**values, **more})


class FakeCluster:
    """`actors` live, by name; `calls` is what was asked, in order."""

    def __init__(self) -> None:
        self.head_away = ""
        self.lost: Exception | None = None
        self.ray_nodes: list[RayNode] = [RayNode("n-1", "ray-1", True, "10.0.0.1", 2)]
        self.actors: dict[str, ReplicaReport] = {}
        self.silent: set[str] = set()
        self.causes: dict[str, str] = {}
        self.placeable = asyncio.Event()
        self.placeable.set()
        self.calls: list[tuple[str, str]] = []
        self.closed = False

    def dies(self, name: str, cause: str) -> None:
        """The actor's process dies."""
        del self.actors[name]
        self.causes[name] = cause

    def asked(self, what: str) -> list[str]:
        return [name for call, name in self.calls if call == what]

    async def attach(self) -> None:
        self._head("attach", "")

    async def nodes(self) -> Sequence[RayNode]:
        if self.lost:
            raise self.lost
        self._head("nodes", "")
        return list(self.ray_nodes)

    async def names(self) -> Sequence[str]:
        self._head("names", "")
        return [*self.actors, "somebody elses actor"]

    async def create(self, order: ReplicaOrder) -> None:
        name = actor_name(order.replica_id, order.incarnation)
        self._head("create", name)
        if name not in self.actors:
            self.actors[name] = report(order.replica_id, order.incarnation, phase="starting")

    async def start(self, order: ReplicaOrder) -> None:
        name = actor_name(order.replica_id, order.incarnation)
        self.calls.append(("start", name))
        await self.placeable.wait()
        self._actor(name)

    async def state(self, name: str) -> Mapping[str, Any]:
        if name in self.silent:
            raise ActorSilent("no answer")
        return self._actor(name).to_json()

    async def stop(self, name: str, grace: float) -> None:
        self.calls.append(("stop", name))
        if name in self.silent:
            raise ActorSilent("no answer")
        self._actor(name)

    async def kill(self, name: str) -> None:
        self._head("kill", name)
        if name in self.actors:
            self.dies(name, "killed")

    async def drain(self, ray_node_id: str, reason: str) -> None:
        self._head("drain", ray_node_id)

    async def aclose(self) -> None:
        self.closed = True

    def _head(self, call: str, name: str) -> None:
        if self.head_away:
            raise HeadAway(self.head_away)
        self.calls.append((call, name))

    def _actor(self, name: str) -> ReplicaReport:
        if name not in self.actors:
            raise ActorGone(self.causes.get(name, "Ray knows no such actor"))
        return self.actors[name]
