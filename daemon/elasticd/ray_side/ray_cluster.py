"""The agent's `Cluster` on real Ray: this process as driver, replicas as detached named actors.

Import it only after Ray's environment is set (`node.ray_env`): Ray reads it when it is imported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray
import ray.exceptions
import ray.util

from elasticd.agent_api.messages import ReplicaOrder
from elasticd.node.ray_env import NODE_LABEL
from elasticd.ray_side.cluster import ActorGone, ActorSilent, DriverLost, HeadAway, RayNode
from elasticd.ray_side.names import actor_name
from elasticd.ray_side.private import HeadClient, driver_stands, leave_quietly, our_nodes
from elasticd.ray_side.replica import ReplicaActor
from elasticd.threads import in_thread

ATTACH_TIMEOUT = 60.0
HEAD_TIMEOUT = 12.0
ACTOR_TIMEOUT = 5.0

T = TypeVar("T")


class RayCluster:
    """One driver, one cluster, for the life of the process."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._head = HeadClient(address)
        self._handles: dict[str, Any] = {}
        self._own_raylet: str | None = None

    async def attach(self) -> None:
        # `ray.init` at a silent or refusing head goes on trying for an hour: look first.
        await self._at_head(self._head.table, "probe")
        try:
            await in_thread(self._init, ATTACH_TIMEOUT, "ray-attach")
        except TimeoutError as late:
            # The thread is still at it, and there is no second `ray.init` beside it.
            raise DriverLost(
                f"Ray head {self._address}: attaching took over {ATTACH_TIMEOUT:.0f} s"
            ) from late

    def _init(self) -> None:
        try:
            ray.init(
                address=self._address,
                namespace=self._namespace,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        except Exception as failed:  # Ray raises many kinds, some of them plain `Exception`
            ray.shutdown()
            raise HeadAway(f"Ray head {self._address}: cannot attach: {failed}") from failed
        leave_quietly()
        self._own_raylet = ray.get_runtime_context().get_node_id()

    async def nodes(self) -> Sequence[RayNode]:
        table = await self._at_head(self._head.table, "nodes")
        if self._own_raylet is not None and not driver_stands(table, self._own_raylet):
            raise DriverLost("the Ray head was restarted; attaching to it anew")
        return our_nodes(table)

    async def names(self) -> Sequence[str]:
        return await self._at_head(ray.util.list_named_actors, "names")

    async def create(self, order: ReplicaOrder) -> None:
        name = actor_name(order.replica_id, order.incarnation)
        identity = {
            key: getattr(order, key)
            for key in ("replica_id", "incarnation", "node_id", "model", "spec_hash")
        }
        options = ray.remote(ReplicaActor).options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            num_gpus=order.gpus,
            num_cpus=0,
            max_restarts=0,
            max_concurrency=8,
            label_selector={NODE_LABEL: order.node_id},
        )
        self._handles[name] = await self._at_head(lambda: options.remote(identity), "create")

    async def start(self, order: ReplicaOrder) -> None:
        handle = await self._handle(actor_name(order.replica_id, order.incarnation))
        await _answer(handle.start.remote(order.to_json()), timeout=None)

    async def state(self, name: str) -> Mapping[str, Any]:
        handle = await self._handle(name)
        answer: Mapping[str, Any] = await _answer(handle.state.remote(), ACTOR_TIMEOUT)
        return answer

    async def stop(self, name: str, grace: float) -> None:
        handle = await self._handle(name)
        await _answer(handle.stop.remote(grace), ACTOR_TIMEOUT)

    async def kill(self, name: str) -> None:
        try:
            handle = await self._handle(name)
        except ActorGone:
            return
        except ActorSilent as away:
            raise HeadAway(str(away)) from away
        await self._at_head(lambda: ray.kill(handle, no_restart=True), "kill")
        self._handles.pop(name, None)

    async def drain(self, ray_node_id: str, reason: str) -> None:
        await self._at_head(lambda: self._head.drain(ray_node_id, reason), "drain")

    async def aclose(self) -> None:
        if ray.is_initialized():
            try:
                await in_thread(ray.shutdown, 5.0, "ray-shutdown")
            except TimeoutError:
                return  # the head is away; the process ends without a farewell

    async def _handle(self, name: str) -> Any:
        if name not in self._handles:
            try:
                self._handles[name] = await in_thread(
                    lambda: ray.get_actor(name, namespace=self._namespace),
                    HEAD_TIMEOUT,
                    "ray-get-actor",
                )
            except ValueError as unknown:
                raise ActorGone("Ray knows no such actor") from unknown
            except (TimeoutError, ray.exceptions.RayError) as away:
                raise ActorSilent(f"Ray head {self._address} does not answer") from away
        return self._handles[name]

    async def _at_head(self, call: Callable[[], T], what: str, timeout: float = HEAD_TIMEOUT) -> T:
        try:
            return await in_thread(call, timeout, f"ray-{what}")
        except TimeoutError as late:
            raise HeadAway(
                f"Ray head {self._address}: {what} without an answer for {timeout:.0f} s"
            ) from late
        except (ray.exceptions.RayError, ConnectionError) as failed:
            raise HeadAway(f"Ray head {self._address}: {what}: {failed}") from failed


async def _answer(call: Awaitable[Any], timeout: float | None) -> Any:
    try:
        async with asyncio.timeout(timeout):
            return await call
    except TimeoutError as late:
        raise ActorSilent(f"no answer for {timeout} s") from late
    except ray.exceptions.ActorUnavailableError as away:
        raise ActorSilent(_cause(away)) from away
    except ray.exceptions.RayActorError as dead:
        raise ActorGone(_cause(dead)) from dead
    except ray.exceptions.RayError as odd:
        raise ActorSilent(_cause(odd)) from odd


def _cause(error: BaseException) -> str:
    """The telling part of Ray's many lines, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("The actor is dead", "The node"))]
    plain = [line for line in lines if not line.startswith(("class_name:", "actor_id:"))]
    text = " ".join(telling or plain[:3])
    return text.split(" Some common causes")[0][:500]
