"""How fast a notice and a loss are acted on: median and worst of twenty, each with its bound.

    python tests/bench/speed_bench.py [--rounds 20]

A whole controller, agent and gateway of this process, over a cluster and a cloud in memory: from
the moment that a machine's watcher (or somebody over the API) tells of its end until the gateway's
route to it is closed, and until a replacement is asked of the provider. And a gateway between stub
engines: from the reset of a connection until the first token that another replica goes on with,
less the time to the first token of a fresh request. Writes `build/reports/speed.json`; exits 1
beyond a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

KIT = Path(__file__).resolve().parent
sys.path.insert(0, str(KIT.parents[1]))

from tests.bench.stub_engine import Http  # noqa: E402
from tests.gateway.harness import StubEngine, stand  # noqa: E402
from tests.ray_side.fake_cluster import FakeCluster  # noqa: E402
from tests.ray_side.running_agent import RunningAgent, running_agent  # noqa: E402
from tests.runtime.fakes import fleet_spec  # noqa: E402
from tests.runtime.world import Operator, World, config, living, wishes  # noqa: E402

from elasticd.agent_api.messages import ReplicaOrder  # noqa: E402
from elasticd.core.decide import Core  # noqa: E402
from elasticd.gateway import Gateway, GatewayConfig  # noqa: E402
from elasticd.gateway.continuation.seam import MARK  # noqa: E402
from elasticd.gateway.desk import Desk  # noqa: E402
from elasticd.gateway.loop import new_loop  # noqa: E402
from elasticd.provider import Instance, LaunchRequest  # noqa: E402
from elasticd.ray_side.cluster import RayNode  # noqa: E402
from elasticd.ray_side.names import actor_name  # noqa: E402
from elasticd.routing_table import RoutingTable, Tier  # noqa: E402
from elasticd.runtime.call_limits import CallLimits  # noqa: E402
from elasticd.runtime.cluster_watch import PollTimes  # noqa: E402
from elasticd.runtime.observer import WatchPeriods  # noqa: E402

REPORT = Path("build/reports/speed.json")
BOUNDS = {
    "watcher_to_route_closed_ms": 100.0,
    "api_to_route_closed_ms": 100.0,
    "watcher_to_replacement_ms": 200.0,
    "api_to_replacement_ms": 200.0,
    "reset_to_next_token_more_than_fresh_ms": 50.0,
}
_PATIENCE = 30.0
_NOTICE = 25.0
"""Seconds: too short for a route to stay open."""
_TOKENS, _STEP, _PREFILL = 40, 10, 20
"""Of each answer; milliseconds between two of them, and before the first one."""


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Polls; exits with what never came."""
    deadline = time.monotonic() + _PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"speed: never: {what}")
        await asyncio.sleep(0.002)
    return found


class Cloud(World):
    """Machines join the cluster at once and hear of their end; engines are ready at once."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.agent_side: RunningAgent | None = None
        self.launched_at = 0.0

    async def launch(self, request: LaunchRequest) -> Instance:
        self.launched_at = time.monotonic()
        instance = await super().launch(request)
        name, agent = request.node_id, self.agent_side
        assert agent is not None
        self._cluster.ray_nodes.append(RayNode(name, f"ray-{name}", True, "127.0.0.1", 1))
        await agent.join(name)
        await agent.report(name, "up", notices=[], notices_complete=True)
        return instance

    def kill(self, node_id: str) -> None:
        super().kill(node_id)
        nodes = self._cluster.ray_nodes
        nodes[:] = [replace(n, alive=n.alive and n.node_id != node_id) for n in nodes]
        for name, seen in list(self._cluster.actors.items()):
            if seen.node_id == node_id:
                self._cluster.dies(name, "its machine is gone")


class ReadyCluster(FakeCluster):
    """Its engines are ready when they are started."""

    async def create(self, order: ReplicaOrder) -> None:
        await super().create(order)
        name = actor_name(order.replica_id, order.incarnation)
        self.actors[name] = replace(
            self.actors[name],
            node_id=order.node_id,
            model=order.model,
            spec_hash=order.spec_hash,
            phase="ready",
            url="http://127.0.0.1:9",
        )


class Routes:
    """What the gateway routes to, and since when."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.closed_at: dict[str, float] = {}

    def watch(self, apply: Callable[[Desk, RoutingTable], None]) -> Callable[..., None]:
        def watched(desk: Desk, table: RoutingTable) -> None:
            apply(desk, table)
            endpoints = [e for m in table.models for e in m.endpoints]
            now_open = {e.node_id for e in endpoints if e.tier is Tier.OPEN}
            for node in self.open - now_open:
                self.closed_at.setdefault(node, time.monotonic())
            self.open = now_open

        return watched


@asynccontextmanager
async def serving(cloud: Cloud, cluster: FakeCluster) -> AsyncIterator[tuple[Operator, Routes]]:
    """Everything runs, and the gateway routes to two replicas."""
    routes = Routes()
    apply, Desk.apply = Desk.apply, routes.watch(Desk.apply)  # type: ignore[method-assign]
    async with AsyncExitStack() as stack:
        stack.callback(setattr, Desk, "apply", apply)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esp")))
        agent = await stack.enter_async_context(running_agent(home, cluster))
        stack.push_async_callback(_ended, agent.task)  # by SIGTERM only one of us can be
        cloud.agent_side = agent
        spec = fleet_spec(min_replicas=2, max_replicas=2)
        spec = replace(spec, pools=(replace(spec.pools[0], max_nodes=100),))
        # One preemption after the other, as no pool has them, is not to wait for its pace of calls.
        pool = replace(
            wishes(cloud).pools["lab"], periods=WatchPeriods(), limits=CallLimits(rate=1000.0)
        )
        wished = replace(wishes(cloud), spec=spec, pools={"lab": pool})
        settings = config(cloud, home, agent.url, wishes=wished, poll=PollTimes())
        operator = await stack.enter_async_context(living(settings, Core))
        gateway = GatewayConfig(settings.admin_socket, home / "gw", port=0, drain_timeout=0.1)
        await stack.enter_async_context(Gateway(gateway))
        await until(lambda: len(routes.open) == 2, "two replicas are routed to")
        yield operator, routes


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def notices(rounds: int, figures: dict[str, list[float]]) -> None:
    """Both ways in which a machine's end is told, in turn."""
    cluster = ReadyCluster()
    cluster.ray_nodes.clear()
    cloud = Cloud(cluster)
    async with serving(cloud, cluster) as (operator, routes):
        agent = cloud.agent_side
        assert agent is not None
        for number in range(2 * rounds):
            way = ("watcher", "api")[number % 2]
            await until(lambda: len(routes.open) == 2, "two replicas are routed to")
            node, other = sorted(routes.open)
            launched = len(cloud.launched)
            if number % 4 == 0:  # other news just before: the controller has not asked again yet
                await agent.report(other, "up", notices=[], notices_complete=number % 8 == 0)
                await asyncio.sleep(0.01)
            began = time.monotonic()
            if way == "watcher":
                goes = {"notice_id": f"x{number}", "kind": "interruption", "seconds_left": _NOTICE}
                await agent.report(node, "up", notices=[goes], notices_complete=True)
            else:
                path = f"/api/v1/nodes/{node}/drain"
                await operator.ask("POST", path, json={"seconds": _NOTICE, "by": "bench"})
            closed = await until(lambda node=node: routes.closed_at.get(node), "a closed route")
            await until(lambda n=launched: len(cloud.launched) > n, "a replacement is asked for")
            figures[f"{way}_to_route_closed_ms"].append((closed - began) * 1000)
            figures[f"{way}_to_replacement_ms"].append((cloud.launched_at - began) * 1000)
            await until(lambda: len(routes.open) == 2, "the replacement is routed to")
            cloud.kill(node)
            await asyncio.sleep(0.3)  # what follows is not part of the next round


async def losses(rounds: int, figures: dict[str, list[float]]) -> None:
    """Streams that break off, beside fresh ones."""
    reset_at: list[float] = []
    reset = Http.rst

    def noted(http: Http) -> None:
        reset_at.append(time.monotonic())
        reset(http)

    Http.rst = noted
    pace = {"itl_ms": _STEP, "ttft_ms": _PREFILL}
    async with AsyncExitStack() as stack:
        stack.callback(setattr, Http, "rst", reset)
        dying = await stack.enter_async_context(StubEngine(**pace, fault="rst", fault_after=9))
        living_one = await stack.enter_async_context(StubEngine(**pace))
        s = await stack.enter_async_context(stand())
        await s.publish(dying.endpoint("a"), living_one.endpoint("b"), continues=True)
        await until(lambda: s.gateway.engines.facts("hash"), "the engines are known")

        async def first_token(after: bytes) -> float:
            body = b""
            async with s.post(stream=True, max_tokens=_TOKENS) as answer:
                found = 0.0
                async for data in answer.content.iter_any():
                    body += data
                    if not found and b'"content":" t' in body.partition(after)[2]:
                        found = time.monotonic()
            if body.count(MARK) != bool(after) or not body.endswith(b"[DONE]\n\n"):
                sys.exit(f"speed: a stream that is not whole: {body[-300:]!r}")
            return found

        for _ in range(rounds):
            await s.publish(living_one.endpoint("b"), continues=True)
            began = time.monotonic()
            fresh = await _fresh(s) - began
            await s.publish(dying.endpoint("a"), continues=True)
            broken = asyncio.create_task(first_token(MARK))
            await until(lambda: dying.replica.running, "it runs")
            await s.publish(dying.endpoint("a"), living_one.endpoint("b"), continues=True)
            more = await broken - reset_at[-1] - fresh
            figures["reset_to_next_token_more_than_fresh_ms"].append(more * 1000)


async def _fresh(s: Any) -> float:
    """When the first token of a request that nothing happens to came."""
    async with s.post(stream=True, max_tokens=2) as answer:
        body, found = b"", 0.0
        async for data in answer.content.iter_any():
            body += data
            if not found and b'"content":" t' in body:
                found = time.monotonic()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    figures: dict[str, list[float]] = {name: [] for name in BOUNDS}
    parts: tuple[Callable[..., Awaitable[None]], ...] = (notices, losses)
    for part in parts:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(part(rounds, figures))
    told = {
        name: {
            "median": round(statistics.median(values), 1),
            "worst": round(max(values), 1),
            "bound": BOUNDS[name],
            "values": [round(v, 1) for v in values],
        }
        for name, values in figures.items()
    }
    beyond = [name for name, row in told.items() if row["worst"] > row["bound"]]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(told, indent=1) + "\n")
    rows = ", ".join(f"{n} {r['median']} (worst {r['worst']})" for n, r in told.items())
    print(f"speed: {'BEYOND ' + ', '.join(beyond) if beyond else 'ok'}: {rows}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
