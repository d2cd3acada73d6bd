"""The Ray head is lost, on real Ray: what serves goes on, and nothing hangs on the old head."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from elasticd.agent_api.messages import ClusterState, ReplicaReport
from tests.node.waiting import alive
from tests.ray_side.small_cluster import SmallCluster, small_cluster

pytestmark = pytest.mark.e2e

STUB = str(Path(__file__).parent / "stub_engine.py")
NODES = ("n-1", "n-2", "n-3")


class Stream:
    """One request that an engine answers with consecutive numbers, for ever."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self.got = 0
        self.task = asyncio.create_task(self._read(session, url, key))

    async def _read(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(
                f"{url}/stream", headers={"Authorization": f"Bearer {key}"}
            ) as answer:
                async for line in answer.content:
                    assert int(line) == self.got
                    self.got += 1

    @property
    def broken(self) -> bool:
        return self.task.done()


@contextlib.asynccontextmanager
async def _streaming(
    cluster: SmallCluster, replicas: list[ReplicaReport]
) -> AsyncIterator[list[Stream]]:
    endless = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=endless) as session:
        streams = [
            Stream(session, r.url, cluster.secret.engine_key(r.replica_id, 1)) for r in replicas
        ]
        yield streams
        for stream in streams:
            stream.task.cancel()
        await asyncio.gather(*(s.task for s in streams), return_exceptions=True)


async def _until(condition: Callable[[], bool], within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.05)


async def _all_get_more(streams: list[Stream]) -> None:
    before = [stream.got for stream in streams]
    await _until(lambda: all(s.got >= b + 20 for s, b in zip(streams, before, strict=True)))


async def _order(cluster: SmallCluster, names: tuple[str, ...]) -> list[ReplicaReport]:
    """One replica on each node, ready."""
    for name, node_id in zip(names, NODES, strict=True):
        words = (sys.executable, STUB, "{port}", "grandchild", "tell-pid")
        order = cluster.order(name, node_id, 1, engine_kind="command", engine_argv=words)
        await cluster.client.start(order)
    return await cluster.until_ready(*names)


def _pid(report: ReplicaReport) -> int:
    return int(next(line for line in report.stderr_tail if line.isdecimal()))


def _all_in_ray(state: ClusterState) -> bool:
    living = {n.node_id for n in state.nodes if n.alive and n.boot == "up"}
    return state.complete and living == set(NODES)


def _in_ray(state: ClusterState) -> dict[str, str]:
    return {n.node_id: n.ray_node_id for n in state.nodes if n.alive}


async def test_a_lost_head_takes_nothing_down_and_one_without_memory_is_joined_again() -> None:
    async with small_cluster() as cluster:
        cluster.start_head_and_agent()
        for node_id in NODES:
            cluster.start_node(node_id, 1)
        first = _in_ray(await cluster.until(_all_in_ray))
        replicas = await _order(cluster, ("r-1", "r-2", "r-3"))
        async with _streaming(cluster, replicas) as streams:
            await _all_get_more(streams)
            await _head_dies_alone(cluster, streams)
            await _head_and_agent_die(cluster, streams, replicas, first)
            await _head_loses_its_memory(cluster, streams, replicas, first)


async def _head_dies_alone(cluster: SmallCluster, streams: list[Stream]) -> None:
    """It is seen, and streams go on."""
    cluster.kill("head")
    state = await cluster.until(lambda s: not s.head_alive, within=60.0)
    assert not state.complete
    assert {n.alive for n in state.nodes} == {None}
    await _all_get_more(streams)


async def _head_and_agent_die(
    cluster: SmallCluster,
    streams: list[Stream],
    replicas: list[ReplicaReport],
    first: dict[str, str],
) -> None:
    """Both come back: the same machines in Ray, the same replicas, not one stream broken."""
    cluster.kill("agent")
    await _all_get_more(streams)
    cluster.start_head_and_agent()
    names = [r.replica_id for r in replicas]

    def as_before(state: ClusterState) -> bool:
        ready = [r.replica_id for r in state.replicas if r.phase == "ready"]
        return _all_in_ray(state) and sorted(ready) == names

    state = await cluster.until(as_before, keep_agent=True)
    assert _in_ray(state) == first
    assert sorted(r.url for r in state.replicas) == sorted(r.url for r in replicas)
    await _all_get_more(streams)
    assert not any(stream.broken for stream in streams)


async def _head_loses_its_memory(
    cluster: SmallCluster,
    streams: list[Stream],
    replicas: list[ReplicaReport],
    first: dict[str, str],
) -> None:
    """Replicas serve as long as Ray lets them; then every machine joins the new head by itself."""
    cluster.kill("head")
    shutil.rmtree(cluster.state_dir / "ray" / "store")
    cluster.start_head()
    watchers = {node_id: cluster.running[node_id].pid for node_id in NODES}
    claims: list[str] = []

    def all_anew(state: ClusterState) -> bool:
        told = {r.replica_id for r in state.replicas}
        # Where Ray has ended, the engine may go on for the moment until it is swept.
        up = {n.node_id for n in state.nodes if n.boot == "up"}
        for replica, stream in zip(replicas, streams, strict=True):
            absent = state.complete and replica.replica_id not in told
            if absent and replica.node_id in up and not stream.broken:
                claims.append(f"{replica.replica_id} streams, and is told to be absent: {state}")
        return _all_in_ray(state) and not set(_in_ray(state).values()) & set(first.values())

    # The agent ends, since its driver belongs to the old head; its supervisor starts it again.
    await cluster.until(all_anew, keep_agent=True)
    assert claims == []
    assert {n: cluster.running[n].pid for n in NODES} == watchers
    await _until(lambda: not any(alive(_pid(report)) for report in replicas))
    await _order(cluster, ("r-4", "r-5", "r-6"))
