"""SIGHUP to a living controller: what changed takes effect, what serves goes on serving."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.decide import Core
from elasticd.core.specs import FleetSpec
from elasticd.errors import UsageError
from elasticd.ops.hangup import Hangups
from tests.runtime.fakes import fleet_spec
from tests.runtime.world import Operator, Plain, World, agent_of, config, living, wishes

SECRET = "hf-token-that-nobody-may-see"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def agent_url(world: World) -> AsyncIterator[str]:
    async with agent_of(world) as url:
        yield url


def ready(number: int) -> Any:
    return lambda status: [model["ready"] for model in status["models"]] == [number]


def two_replicas() -> FleetSpec:
    return fleet_spec(min_replicas=2, max_replicas=3)


async def hang_up(operator: Operator, number: int) -> Any:
    """Sends SIGHUP; the status once the reload of that number is done."""
    os.kill(os.getpid(), signal.SIGHUP)
    return await operator.until(lambda s: s["controller"]["reload"]["number"] >= number)


async def test_new_bounds_hold_at_once_and_nothing_is_restarted(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    plain.next.append(replace(plain, spec=two_replicas()))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        before = await operator.until(ready(1))
        status = await hang_up(operator, 1)
        assert status["controller"]["reload"]["changed"] == ["models"]
        after = await operator.until(ready(2))
    assert after["nodes"][0]["id"] == before["nodes"][0]["id"]
    assert after["controller"]["epoch"] == before["controller"]["epoch"]
    assert len(world.contexts) == 1  # the provider was left alone


async def test_a_drain_under_way_goes_on_through_a_reload(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    plain.next.append(replace(plain, spec=two_replicas()))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        status = await operator.until(ready(1))
        node = status["nodes"][0]["id"]
        await operator.ask("POST", f"/api/v1/nodes/{node}/drain", json={"seconds": 300})
        before = await operator.until(lambda s: s["nodes"][0]["phase"] == "draining")
        after = await hang_up(operator, 1)
        assert after["nodes"][0]["phase"] == "draining"
        assert after["nodes"][0]["seconds_left"] <= before["nodes"][0]["seconds_left"]


async def test_a_changed_model_is_rolled_out_with_both_versions_known(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    newer = replace(plain.spec.models[0], spec_hash="hash-2", stall_timeout=77.0)
    plain.next.append(replace(plain, spec=replace(plain.spec, models=(newer,))))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        status = await operator.until(ready(1))
        old = status["replicas"][0]["id"]
        await hang_up(operator, 1)
        await operator.until(lambda s: any(r["phase"] == "draining" for r in s["replicas"]))
        orders = {order.replica_id: order.spec_hash for order in world.engines.values()}
        assert orders.pop(old) == "hash"  # serves until the other one does
        assert list(orders.values()) == ["hash-2"]
        idle = {"v": 1, "loads": [{"replica_id": old, "in_flight": 0}]}
        await operator.ask("POST", "/internal/v1/report", json=idle)
        await operator.until(lambda s: ready(1)(s) and s["models"][0]["outdated"] == 0)
        assert old not in world.engines


async def test_a_source_is_looked_up_and_nothing_is_bought_before_it_is_known(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    plain = replace(wishes(world), sources=("hf:a/b@main",))
    plain.next.append(replace(plain, sources=(f"hf:a/b@{commit}",)))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        status = await operator.until(lambda s: s["models"] and s["models"][0]["unresolved"])
        assert world.launched == []
        assert status["nodes"] == []
        await hang_up(operator, 1)
        await operator.until(ready(1))
    [order] = world.engines.values()
    assert order.weights == f"hf:a/b@{commit}"


async def test_a_bad_file_is_refused_told_and_harms_nobody(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    plain.next.extend([UsageError("elasticd.yaml:3: max_nodes: unknown key"), plain])
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        await operator.until(ready(1))
        status = await hang_up(operator, 1)
        assert "unknown key" in status["controller"]["reload"]["problem"]
        assert status["controller"]["reload"]["at_age"] >= 0
        assert (await operator.ask("GET", "/healthz"))[0] == 200
        status = await hang_up(operator, 2)
        assert status["controller"]["reload"]["problem"] == ""
        assert ready(1)(status)


async def test_a_pool_that_still_has_machines_stays_and_the_file_is_refused(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    plain.next.append(replace(plain, spec=replace(plain.spec, pools=()), pools={}))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        await operator.until(ready(1))
        status = await hang_up(operator, 1)
        assert status["controller"]["reload"]["problem"].endswith("pool lab still has 1 machines")
        assert [pool["name"] for pool in status["pools"]] == ["lab"]
    assert len(world.machines) == 1


async def test_a_renamed_cluster_waits_for_a_restart(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    renamed = replace(plain.spec, cluster="renamed")
    plain.next.append(replace(plain, spec=renamed, restart="cluster"))
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        await operator.until(ready(1))
        status = await hang_up(operator, 1)
        assert status["controller"]["reload"]["needs_restart"] == ["restart"]
        assert status["cluster"] == "test"


async def test_a_signal_between_reading_the_file_and_serving_is_not_lost(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    plain.next.append(replace(plain, spec=two_replicas()))
    hangups = Hangups()
    os.kill(os.getpid(), signal.SIGHUP)
    settings = config(world, tmp_path, agent_url, wishes=plain)
    async with living(settings, Core, hangups) as operator:
        await operator.until(ready(2))


async def test_signals_while_it_stops_are_harmless(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    async with living(config(world, tmp_path, agent_url, wishes=plain), Core) as operator:
        await operator.until(ready(1))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    assert len(world.machines) == 1


async def test_the_token_for_weights_reaches_orders_and_nothing_else(
    world: World, agent_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = wishes(world)
    model = replace(plain.spec.models[0], weights="hf:a/b@123", fetch_timeout=77.0)
    fetched: Plain = replace(
        plain,
        spec=replace(plain.spec, models=(model,)),
        env=(("HF_TOKEN", SECRET),),
    )
    fetched.next.append(fetched)
    async with living(config(world, tmp_path, agent_url, wishes=fetched), Core) as operator:
        await operator.until(ready(1))
        status = await hang_up(operator, 1)
    [order] = world.engines.values()
    assert (order.weights, order.fetch_timeout) == ("hf:a/b@123", 77.0)
    assert order.fetch_env == (("HF_TOKEN", SECRET),)
    assert SECRET not in str(status)
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
