"""A signal in the middle of something: it ends in time, and what was begun is known."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event, ScaleHeld
from elasticd.ops.hangup import Hangups
from elasticd.provider import Instance, InstanceNotFound, LaunchRequest
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.controller import run_controller
from elasticd.runtime.last_picture import read_last_known
from elasticd.runtime.ledger import LedgerStore
from elasticd.runtime.loop import ControlLoopFailed
from tests.runtime.world import DEADLINE, Operator, World, agent_of, config, living, wishes

pytestmark = pytest.mark.slow


class Holding(World):
    """Its answers to launches and ends come when the test lets them; the work is done before."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.let = asyncio.Event()
        self.begun: list[str] = []

    async def launch(self, request: LaunchRequest) -> Instance:
        return await self._hold("launch", super().launch(request))

    async def terminate(self, instance_id: str) -> None:
        await self._hold("terminate", super().terminate(instance_id))

    async def _hold(self, what: str, work: Awaitable[Any]) -> Any:
        try:
            answer = await work
        except InstanceNotFound as gone:
            answer = gone
        self.begun.append(what)
        if what in self.held:
            await self.let.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def world() -> Holding:
    return Holding()


@pytest.fixture
async def agent_url(world: Holding) -> AsyncIterator[str]:
    async with agent_of(world) as url:
        yield url


def serves(status: Any) -> bool:
    return any(model["ready"] >= 1 for model in status["models"])


def settled(status: Any) -> bool:
    return serves(status) and all(n["phase"] in ("ready", "gone") for n in status["nodes"])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.01)


async def ended(life: asyncio.Future[None], within: float) -> None:
    async with asyncio.timeout(within):
        await life


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def running(
    settings: ControllerConfig, core: Any = Core
) -> AsyncIterator[asyncio.Future[None]]:
    """A life that the test ends by itself."""
    life = asyncio.ensure_future(run_controller(settings, core))
    try:
        yield life
    finally:
        if not life.done():
            life.cancel()
        await asyncio.gather(life, return_exceptions=True)


@asynccontextmanager
async def reach(settings: ControllerConfig) -> AsyncIterator[Operator]:
    connector = aiohttp.UnixConnector(str(settings.admin_socket))
    async with aiohttp.ClientSession("http://admin", connector=connector) as session:
        yield Operator(session)


async def one_machine_serves(settings: ControllerConfig, world: World) -> None:
    async with living(settings, Core) as operator:
        await operator.until(settled)
        assert len(world.machines) == 1
        assert len({request.node_id for request in world.launched}) == 1


async def test_a_stop_while_a_launch_is_held_ends_in_time_and_the_next_start_knows_the_machine(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, stop_grace=0.2)
    world.held = {"launch"}
    async with running(settings) as life:
        await until(lambda: "launch" in world.begun)
        terminate()
        await ended(life, 5.0)
    world.held = set()
    await one_machine_serves(settings, world)


async def test_an_answer_within_the_grace_is_written_down(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, stop_grace=DEADLINE)
    world.held = {"launch"}
    async with running(settings) as life:
        await until(lambda: "launch" in world.begun)
        terminate()
        await asyncio.sleep(0.05)
        assert not life.done()
        world.let.set()
        await ended(life, 5.0)
    [node] = [row.doc for row in read_last_known(tmp_path).rows if row.kind == "node"]
    assert node is not None
    assert node["instance_id"] == f"i-{world.launched[0].node_id}"
    await one_machine_serves(settings, world)
    assert len(world.launched) == 1


async def test_a_second_signal_waits_for_no_answer(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, stop_grace=600.0)
    world.held = {"launch"}
    async with running(settings) as life:
        await until(lambda: "launch" in world.begun)
        terminate()
        await asyncio.sleep(0.1)
        assert not life.done()
        terminate()
        await ended(life, 5.0)
    world.held = set()
    await one_machine_serves(settings, world)


async def test_a_stop_during_a_commit_ends_after_it_and_nothing_is_begun_unrecorded(
    world: Holding, agent_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    commit = LedgerStore.commit

    def held(self: LedgerStore, *args: Any) -> None:
        if any(row.kind == "node" for row in args[1]):
            begun.set()
            assert go_on.wait(DEADLINE)
        commit(self, *args)

    monkeypatch.setattr(LedgerStore, "commit", held)
    settings = config(world, tmp_path, agent_url)
    async with running(settings) as life:
        await until(begun.is_set)
        terminate()
        await asyncio.sleep(0.05)
        assert not life.done()
        go_on.set()
        await ended(life, 5.0)
    assert world.launched == []  # decided, written, and left to the next life
    assert [row.id for row in read_last_known(tmp_path).rows if row.kind == "node"]
    await one_machine_serves(settings, world)


async def _draining(operator: Operator) -> str:
    status = await operator.until(serves)
    node = str(status["nodes"][0]["id"])
    await operator.ask("POST", f"/api/v1/nodes/{node}/drain", json={"seconds": 600})
    await operator.until(lambda s: s["nodes"][0]["phase"] == "draining")
    return node


def _phase(status: Any, node: str) -> str:
    return next((n["phase"] for n in status["nodes"] if n["id"] == node), "gone")


async def test_a_drain_goes_on_over_a_stop_in_the_middle(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url)
    async with living(settings, Core) as operator:
        node = await _draining(operator)
    async with living(settings, Core) as operator:
        status = await operator.until(lambda s: s["models"] and s["cluster_complete"])
        assert _phase(status, node) != "ready"
        await operator.until(
            lambda s: serves(s) and sum(r["phase"] == "ready" for r in s["replicas"]) == 1
        )
        idle = [{"replica_id": r["id"], "in_flight": 0} for r in status["replicas"]]
        await operator.ask("POST", "/internal/v1/report", json={"v": 1, "loads": idle})
        await operator.until(lambda s: _phase(s, node) == "gone" and settled(s))
    assert list(world.machines) != [node]
    assert len(world.machines) == 1


async def test_a_stop_while_a_machine_ends_is_taken_up_by_the_next_start(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, stop_grace=0.2)
    async with living(settings, Core) as operator:
        await operator.until(serves)
    world.held = {"terminate"}
    async with running(settings) as life:
        await until(lambda: (settings.admin_socket).exists())
        async with reach(settings) as operator:
            status = await operator.until(serves)
            await operator.ask("POST", "/api/v1/down", json={"by": "test"})
            idle = [{"replica_id": r["id"], "in_flight": 0} for r in status["replicas"]]
            await operator.until(lambda s: s["replicas"][0]["phase"] == "draining")
            await operator.ask("POST", "/internal/v1/report", json={"v": 1, "loads": idle})
            await until(lambda: "terminate" in world.begun)
        terminate()
        await ended(life, 5.0)
    world.held = set()
    async with living(settings, Core) as operator:
        await operator.until(lambda s: s["down"] == {"left": 0})
    assert world.machines == {}


async def test_a_reload_in_the_middle_of_a_drain_leaves_the_drain_alone(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    plain = wishes(world)
    [model] = plain.spec.models
    other = replace(model, scaling=replace(model.scaling, max_replicas=3))
    plain.next.append(replace(plain, spec=replace(plain.spec, models=(other,))))
    settings = config(world, tmp_path, agent_url, wishes=plain)
    async with living(settings, Core, Hangups()) as operator:
        node = await _draining(operator)
        before = next(n for n in (await operator.status())["nodes"] if n["id"] == node)
        os.kill(os.getpid(), signal.SIGHUP)
        status = await operator.until(lambda s: s["controller"]["reload"]["number"] == 1)
        assert status["controller"]["reload"]["changed"] == ["models"]
        status = await operator.until(lambda s: s["models"][0]["max_replicas"] == 3)
        after = next((n for n in status["nodes"] if n["id"] == node), None)
        assert after is not None
        assert after["phase"] == "draining"
        assert after["seconds_left"] <= before["seconds_left"]
        await operator.until(lambda s: sum(r["phase"] == "ready" for r in s["replicas"]) == 1)
        idle = [{"replica_id": r["id"], "in_flight": 0} for r in status["replicas"]]
        await operator.ask("POST", "/internal/v1/report", json={"v": 1, "loads": idle})
        await operator.until(lambda s: _phase(s, node) == "gone" and settled(s))


class Faulty(Core):
    """The real core until somebody holds a model."""

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        if any(isinstance(event, ScaleHeld) for event in events):
            raise ZeroDivisionError("a bug")
        return super().step(now, events)


async def test_after_a_fault_a_call_under_way_is_answered_and_the_next_life_finds_its_work(
    world: Holding, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0, stop_grace=DEADLINE)
    world.held = {"launch"}
    with capture_logs() as logs:
        async with running(settings, Faulty) as life:
            await until(lambda: "launch" in world.begun)
            async with reach(settings) as operator:
                await operator.until(lambda s: bool(s["nodes"]))
                await operator.ask("POST", "/api/v1/models/tiny/scale", json={"replicas": 1})
                await operator.until(lambda h: not h["alive"], "/healthz")
            assert not life.done()  # it waits for the answer
            world.let.set()
            with pytest.raises(ControlLoopFailed, match="a bug"):
                await ended(life, 5.0)
    [told] = [line for line in logs if line["event"] == "answer_after_fault"]
    assert f"i-{world.launched[0].node_id}" in told["answer"]
    assert len(world.launched) == 1
    await one_machine_serves(settings, world)
