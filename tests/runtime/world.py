"""A cloud and a cluster in memory: machines join at once, engines are ready at once.

The controller reaches the cloud as a provider and the cluster over the agent's real wire.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from elasticd.agent_api.messages import ClusterState, NodeReport, ReplicaOrder, ReplicaReport
from elasticd.core.specs import FleetSpec
from elasticd.ops.hangup import Hangups
from elasticd.provider import (
    Instance,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    Offering,
    PoolContext,
    ProviderPlugin,
)
from elasticd.runtime.cluster_watch import PollTimes
from elasticd.runtime.config import ControllerConfig, PoolConfig
from elasticd.runtime.controller import run_controller
from elasticd.runtime.hub_api import Hub
from elasticd.runtime.observer import WatchPeriods
from elasticd.runtime.ports import CoreFactory
from elasticd.settings.day_start import DayStart
from elasticd.settings.document import Problem
from elasticd.settings.sources import Resolved
from tests.runtime.fakes import OFFERING, fleet_spec

DEADLINE = 20.0


class World:
    """Machines and engines; both outlive any controller."""

    def __init__(self) -> None:
        self.machines: dict[str, Instance] = {}
        self.engines: dict[str, ReplicaOrder] = {}
        self.launched: list[LaunchRequest] = []
        self.contexts: list[PoolContext] = []
        self.tokens: set[str | None] = set()
        self._shown: object = None
        self._version = 0
        self.reclaimed: list[float | None] = []
        self.hanging = False
        self.asked = 0

    async def offerings(self) -> Sequence[Offering]:
        return (OFFERING,)

    async def launch(self, request: LaunchRequest) -> Instance:
        self.launched.append(request)
        instance = Instance(
            f"i-{request.node_id}",
            request.node_id,
            request.ledger_id,
            InstanceState.RUNNING,
            OFFERING,
            "127.0.0.1",
        )
        return self.machines.setdefault(request.node_id, instance)

    async def terminate(self, instance_id: str) -> None:
        node_id = instance_id.removeprefix("i-")
        if node_id not in self.machines:
            raise InstanceNotFound(instance_id)
        self.kill(node_id)

    async def instances(self) -> Sequence[Instance]:
        self.asked += 1
        if self.hanging:
            await asyncio.Event().wait()
        return tuple(self.machines.values())

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """A notice alone ends nothing here."""
        self.reclaimed.append(notice)
        if notice is None:
            self.kill(instance_id.removeprefix("i-"))

    async def aclose(self) -> None:
        """Nothing is held."""

    def kill(self, node_id: str) -> None:
        """The machine goes, with every engine on it."""
        del self.machines[node_id]
        self.engines = {r: o for r, o in self.engines.items() if o.node_id != node_id}

    def create(self, context: PoolContext, options: Any) -> World:
        self.contexts.append(context)
        return self

    def agent(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/state", self._state)
        app.router.add_put("/v1/replicas/{id}", self._start)
        app.router.add_delete("/v1/replicas/{id}", self._stop)
        return app

    async def _state(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization"))
        seen = (tuple(self.machines), tuple(self.engines))
        if seen != self._shown:
            self._shown, self._version = seen, self._version + 1
        state = ClusterState(
            "life",
            self._version,
            complete=True,
            head_alive=True,
            nodes=tuple(NodeReport(n, True, gpus=1, boot="up") for n in self.machines),
            replicas=tuple(
                ReplicaReport(
                    o.replica_id,
                    o.incarnation,
                    o.node_id,
                    o.model,
                    o.spec_hash,
                    "ready",
                    url=f"http://{o.host}:{o.port_min}",
                )
                for o in self.engines.values()
            ),
        )
        return web.json_response(state.to_json())

    async def _start(self, request: web.Request) -> web.Response:
        order = ReplicaOrder.from_json(await request.json())
        self.engines.setdefault(order.replica_id, order)
        return web.json_response({}, status=202)

    async def _stop(self, request: web.Request) -> web.Response:
        self.engines.pop(request.match_info["id"], None)
        return web.json_response({}, status=202)


@asynccontextmanager
async def agent_of(world: World) -> AsyncIterator[str]:
    runner = web.AppRunner(world.agent(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass(frozen=True)
class Verdict:
    """What `settings.reload.compare` answers, as far as the shell looks."""

    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    refused: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Plain:
    """Wishes without a file: `next` is what the next reading finds, or the error it meets."""

    spec: FleetSpec
    pools: Mapping[str, PoolConfig]
    env: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    day_starts: DayStart = field(default_factory=DayStart)
    restart: str = ""
    next: list[Any] = field(default_factory=list, compare=False)

    def fleet(self, resolved: Mapping[str, Resolved], problems: Mapping[str, str]) -> FleetSpec:
        """A model whose source is the first of `sources` waits for its commit."""
        if not self.sources:
            return self.spec
        known, problem = resolved.get(self.sources[0]), problems.get(self.sources[0], "unknown")
        [model] = self.spec.models
        told = replace(
            model,
            weights=f"hf:a/b@{known.commit}" if known else "",
            unresolved="" if known else problem,
        )
        return replace(self.spec, models=(told,))

    def hub(self) -> Hub:
        return Hub("http://127.0.0.1:9")

    def fetch_env(self) -> tuple[tuple[str, str], ...]:
        return self.env

    def secret_env(self, model: str) -> tuple[tuple[str, str], ...]:
        return ()

    def reread(self) -> Any:
        found = self.next.pop(0) if self.next else self
        if isinstance(found, Exception):
            raise found
        return replace(found, next=self.next)

    def compare(self, newer: Any, machines: Mapping[str, int]) -> Any:
        gone = {pool.name for pool in self.spec.pools} - {pool.name for pool in newer.spec.pools}
        refused = tuple(
            Problem(("node_pools",), f"pool {name} still has {machines[name]} machines")
            for name in sorted(gone)
            if machines.get(name)
        )
        changed = ("models",) if self.spec.models != newer.spec.models else ()
        restart = ("restart",) if self.restart != newer.restart else ()
        return Verdict(changed, restart, refused)


def wishes(world: World) -> Plain:
    return Plain(
        fleet_spec(min_replicas=1, max_replicas=2),
        {
            "lab": PoolConfig(
                ProviderPlugin(options=object, create=world.create),
                None,
                periods=WatchPeriods(instances=0.2, offerings=5.0),
            )
        },
    )


def config(world: World, state_dir: Path, agent_url: str, **more: Any) -> ControllerConfig:
    plain = ControllerConfig(
        state_dir=state_dir,
        wishes=wishes(world),
        agent_url=agent_url,
        admin_socket=state_dir / "run" / "admin.sock",
        bootstrap=lambda node_id, token, gpus, _: f"join {node_id} {token} {gpus}",
        poll=PollTimes(wait=0.2, spacing=0.05, retry=0.1),
        stop_grace=0.5,
        fault_linger=0.5,
    )
    return replace(plain, **more)


class Operator:
    """Asks over the admin socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        async with self._session.request(method, path, **more) as answer:
            return answer.status, (await answer.json() if answer.status != 204 else None)

    async def status(self) -> Any:
        return (await self.ask("GET", "/api/v1/status"))[1]

    async def until(self, holds: Callable[[Any], bool], path: str = "/api/v1/status") -> Any:
        """The first answer for which `holds` is true."""
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    _, answer = await self.ask("GET", path)
                except aiohttp.ClientConnectionError:
                    answer = None
                if answer is not None and holds(answer):
                    return answer
                await asyncio.sleep(0.02)


@asynccontextmanager
async def living(
    settings: ControllerConfig, core: CoreFactory, hangups: Hangups | None = None
) -> AsyncIterator[Operator]:
    """A controller of this process; stopped by SIGTERM at the end, as an init system would."""
    life = asyncio.ensure_future(run_controller(settings, core, hangups))
    connector = aiohttp.UnixConnector(str(settings.admin_socket))
    try:
        async with aiohttp.ClientSession("http://admin", connector=connector) as session:
            yield Operator(session)
    finally:
        if not life.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            await life
