"""A cluster agent without a cluster: the real wire, machines that are those of the fake cloud.

A machine that runs has joined, one whose boot failed says so, one that has ended is dead. A replica
that is ordered is healthy at once, and is gone with its machine or when it is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from elasticd.agent_api.messages import ClusterState, NodeReport, ReplicaOrder, ReplicaReport
from elasticd_providers.fake.identity import identity_of

NOWHERE = "http://127.0.0.1:9"
"""Where replicas are said to answer; nobody asks them anything."""


def node_of(machine: Mapping[str, Any], cluster: str) -> str:
    """The node that a machine of the cluster was made for; empty: it is not of the cluster."""
    identity = identity_of(machine["name"], machine["tags"])
    return identity.node_id if identity is not None and identity.cluster == cluster else ""


class FakeAgent:
    """Serves on a port of its own; `see` tells it what the cloud has."""

    def __init__(self, cluster: str, token: str) -> None:
        self._cluster = cluster
        self._token = token
        self._nodes: tuple[NodeReport, ...] = ()
        self._orders: dict[str, ReplicaOrder] = {}
        self._version = 1
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """The port."""
        app = web.Application(middlewares=[self._only_the_controller])
        app.router.add_get("/v1/state", self._state)
        app.router.add_put("/v1/replicas/{id}", self._start)
        app.router.add_delete("/v1/replicas/{id}", self._stop)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def see(self, machines: Iterable[Mapping[str, Any]]) -> None:
        """What the cloud has now, ended machines included."""
        reports: dict[str, NodeReport] = {}
        for machine in machines:
            node_id = node_of(machine, self._cluster)
            if not node_id or machine["state"] == "ordered":
                continue
            report = _report(node_id, machine)
            known = reports.get(node_id)
            if known is None or report.alive:
                reports[node_id] = report
        nodes = tuple(reports[key] for key in sorted(reports))
        if nodes == self._nodes:
            return
        self._nodes = nodes
        alive = self._alive()
        self._orders = {k: o for k, o in self._orders.items() if o.node_id in alive}
        await self._change()

    def _alive(self) -> set[str]:
        return {node.node_id for node in self._nodes if node.alive}

    async def _change(self) -> None:
        async with self._changed:
            self._version += 1
            self._changed.notify_all()

    @web.middleware
    async def _only_the_controller(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.json_response({"error": "wrong or missing token"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _state(self, request: web.Request) -> web.Response:
        known = int(request.query["version"])
        try:
            async with asyncio.timeout(float(request.query["wait"])), self._changed:
                await self._changed.wait_for(lambda: self._version != known)
        except TimeoutError:
            pass
        replicas = tuple(_healthy(order) for order in self._orders.values())
        state = ClusterState("sweep", self._version, True, True, self._nodes, replicas)
        return web.json_response(state.to_json())

    async def _start(self, request: web.Request) -> web.Response:
        order = ReplicaOrder.from_json(await request.json())
        if order.node_id not in self._alive():
            told = {"error": f"node {order.node_id} is not alive in Ray"}
            return web.json_response(told, status=409)
        self._orders[order.replica_id] = order
        await self._change()
        return web.json_response({}, status=202)

    async def _stop(self, request: web.Request) -> web.Response:
        self._orders.pop(request.match_info["id"], None)
        await self._change()
        return web.json_response({}, status=202)


def _report(node_id: str, machine: Mapping[str, Any]) -> NodeReport:
    alive = machine["state"] == "active"
    boot = "up" if alive else "joining"
    if machine["boot_fails"]:
        boot = "failed: no usable device"
    return NodeReport(node_id, alive, gpus=machine["gpu_count"] if alive else 0, boot=boot)


def _healthy(order: ReplicaOrder) -> ReplicaReport:
    return ReplicaReport(
        order.replica_id,
        order.incarnation,
        order.node_id,
        order.model,
        order.spec_hash,
        "ready",
        url=NOWHERE,
    )
