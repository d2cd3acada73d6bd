"""The same fault three times: the controller stays, tells everything, and does nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event
from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.ops.status_problems import is_fine
from elasticd.ops.status_view import render
from elasticd.ops.status_why import explain
from elasticd.ops.text_table import Paint
from elasticd.runtime.controller import ControllerFailed, run_controller
from elasticd.runtime.fault_memory import FaultMemory
from elasticd.runtime.ledger import read_journal_file
from elasticd.runtime.loop import ControlLoopFailed
from elasticd.runtime.state_lock import StateDirInUse
from tests.runtime.fakes import ScriptedCore
from tests.runtime.world import DEADLINE, Operator, World, agent_of, config, living


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def agent_url(world: World) -> AsyncIterator[str]:
    async with agent_of(world) as url:
        yield url


class Broken(Core):
    """The real core, as far as it can still tell; every step of it is a fault."""

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        raise ZeroDivisionError("a bug")


class Silent(Broken):
    """One that cannot even tell."""

    def status(self, now: float) -> dict[str, Any]:
        raise LookupError("nor this")


def unbuildable(ledger_id: str, epoch: int, rows: Sequence[Row]) -> Core:
    raise KeyError("a row that no core understands")


def serves(status: Any) -> bool:
    return any(model["ready"] >= 1 for model in status["models"])


async def crash(
    settings: Any, core: Callable[..., Any], kind: type[ElasticdError]
) -> ElasticdError:
    """One life that ends by a fault."""
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(kind) as failed:
            await run_controller(settings, core)
    return failed.value


def dump(state_dir: Path) -> list[str]:
    with sqlite3.connect(f"file:{state_dir}/ledger.sqlite?mode=ro", uri=True) as db:
        return list(db.iterdump())


async def observed(operator: Operator, world: World) -> Any:
    """Its status, once it observes and the provider has been listed."""
    return await operator.until(
        lambda s: (
            bool(s.get("observe_only"))
            and any(pool.get("listed_age") is not None for pool in s["pools"])
        )
    )


async def test_the_third_time_of_one_fault_it_stays_and_only_observes(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    async with living(settings, Core) as operator:
        await operator.until(serves)
    machines, engines = dict(world.machines), dict(world.engines)
    for _ in range(2):
        fault = await crash(settings, Broken, ControlLoopFailed)
        assert "a bug" in str(fault)
    async with living(settings, Broken) as operator:
        status = await observed(operator, world)
        before = dump(tmp_path)
        asked = world.asked
        await operator.until(lambda _: world.asked > asked + 2)  # it goes on watching
        assert dump(tmp_path) == before
    assert next(iter(status)) == "observe_only"
    told = status["observe_only"]
    assert told["fault"] == "ZeroDivisionError in runtime/loop.py ControlLoop._round"
    assert (told["times"], "start it again" in told["do"]) == (3, True)
    assert [node["phase"] for node in status["nodes"]] == ["ready"]  # as the ledger has it
    [pool] = [pool for pool in status["pools"] if pool["name"] == "lab"]
    assert [(m["node_id"], m["ours"]) for m in pool["machines"]] == [
        (node_id, True) for node_id in machines
    ]
    assert (world.machines, world.engines) == (machines, engines)


async def test_while_it_observes_health_is_red_and_what_is_asked_is_refused(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    for _ in range(2):
        await crash(settings, Broken, ControlLoopFailed)
    async with living(settings, Broken) as operator:
        await observed(operator, world)
        for path in ("/healthz", "/readyz"):
            code, answer = await operator.ask("GET", path)
            assert code == 503, answer
        for path in (
            "/api/v1/down",
            "/api/v1/adopt",
            "/api/v1/nodes/n-1/drain",
            "/api/v1/nodes/n-1/preempt",
            "/api/v1/models/tiny/scale",
        ):
            body = {"ledger_id": "other", "replicas": 2}
            code, answer = await operator.ask("POST", path, json=body)
            assert code == 409, (path, answer)
            assert "only observe" in answer["error"].replace("observed", "observe"), answer
        code, answer = await operator.ask("POST", "/api/v1/reload", json={})
        assert (code, answer["observe_only"]) == (409, True)
        assert "only observes" in answer["error"]
        sample = {"model": "tiny", "queued": 1, "in_flight": 0, "peak": 1, "arrivals": 1}
        report = {"v": 1, "models": [sample], "loads": []}
        assert (await operator.ask("POST", "/internal/v1/report", json=report))[0] == 204
        table = "/internal/v1/table?epoch=1&version=7&wait=0.01"
        assert (await operator.ask("GET", table))[0] == 204  # the gateway keeps what it has
        code, _ = await operator.ask("GET", "/api/v1/events?since_seq=0&since=0&limit=9")
        assert code == 200
        with pytest.raises(StateDirInUse):
            await run_controller(settings, Core)
    assert world.launched == []


async def test_stopping_the_observer_allows_one_try_and_the_same_fault_ends_it_at_once(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    for _ in range(2):
        await crash(settings, Broken, ControlLoopFailed)
    async with living(settings, Broken) as operator:
        await observed(operator, world)
    async with living(settings, Broken) as operator:  # one try, and no further crash
        status = await observed(operator, world)
        assert status["observe_only"]["times"] == 4
    async with living(settings, Core) as operator:  # mended
        status = await operator.until(serves)
        assert "observe_only" not in status


async def test_a_healthy_while_makes_earlier_faults_count_no_more(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0, healthy_after=0.0)
    for _ in range(2):
        FaultMemory(tmp_path).note(ZeroDivisionError("a bug"), 1.0)
    async with living(settings, Core) as operator:
        await operator.until(serves)
        assert not (tmp_path / "faults.json").exists()


@pytest.mark.parametrize("core", [unbuildable, Silent])
async def test_it_tells_what_the_rows_say_where_the_core_cannot(
    core: Any, world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    async with living(settings, Core) as operator:
        await operator.until(serves)
    for _ in range(2):
        await crash(settings, core, ElasticdError)
    async with living(settings, core) as operator:
        status = await observed(operator, world)
    [node] = status["nodes"]
    assert (node["pool"], node["phase"]) == ("lab", "ready")
    assert status["cluster"] == "test"
    assert len(render(status, 100, Paint(False))) > 5


async def test_a_fault_in_what_a_core_is_made_of_is_one_clear_message(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url)
    fault = await crash(settings, unbuildable, ControllerFailed)
    assert fault.exit_code == 1
    assert "a row that no core understands" in str(fault)
    assert "machines and replicas go on" in str(fault)
    assert "\n" not in str(fault)


async def test_the_first_line_of_the_status_says_that_it_only_observes(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    for _ in range(2):
        await crash(settings, Broken, ControlLoopFailed)
    async with living(settings, Broken) as operator:
        status = await observed(operator, world)
    lines = render(status, 100, Paint(False))
    assert lines[0].startswith("! OBSERVE ONLY: the controller has only observed for")
    assert any("a bug" in line for line in lines[:6])
    assert any("start it again" in line for line in lines)
    assert not is_fine(status)  # exit code 1


async def test_a_ledger_that_cannot_be_read_does_not_end_the_observer(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no ledger at all")
    for _ in range(3):
        FaultMemory(tmp_path).note(ZeroDivisionError("a bug"), 1.0)
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        status = await operator.until(lambda s: bool(s.get("observe_only")))
        assert "ledger" in status["controller"]["ledger_error"]
        assert "is not the fleet" in "".join(render(status, 200, Paint(False))[:5])
        code, answer = await operator.ask("GET", "/api/v1/events?since_seq=0&since=0&limit=9")
        assert (code, "ledger" in answer["error"]) == (409, True)
    assert world.asked == 0  # whose machines to look for is not known


async def test_a_fault_writes_and_publishes_nothing_of_what_was_half_decided(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    def decide(now: float, events: Sequence[Event]) -> Plan:
        core.rows = [Row("node", "half", {"phase": "requested"})]
        raise ZeroDivisionError("a bug")

    core = ScriptedCore(decide)
    await crash(
        config(world, tmp_path, agent_url, fault_linger=0.0), lambda *_: core, ControlLoopFailed
    )
    assert read_journal_file(tmp_path) == []
    assert not any("half" in line for line in dump(tmp_path))
    assert world.launched == []


async def test_after_a_fault_nothing_is_accepted_any_more(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=DEADLINE)
    life = living(settings, Broken)
    operator = await life.__aenter__()
    await operator.until(lambda h: not h["alive"], "/healthz")
    code, answer = await operator.ask("POST", "/api/v1/down", json={})
    assert code == 409
    assert "stopped by a fault" in answer["error"]
    with pytest.raises(ControlLoopFailed):
        await life.__aexit__(None, None, None)


async def test_it_shows_the_last_known_fleet_of_the_configuration_and_what_lies_about(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    async with living(settings, Core) as operator:
        await operator.until(serves)
    for _ in range(2):
        await crash(settings, Broken, ControlLoopFailed)
    [(known, machine)] = world.machines.items()
    world.machines["n-lost"] = replace(machine, instance_id="i-lost", node_id="n-lost")
    world.machines["n-other"] = replace(
        machine, instance_id="i-other", node_id="n-other", ledger_id="f" * 32
    )
    async with living(settings, Broken) as operator:
        status = await observed(operator, world)
    [model] = status["models"]
    assert (model["name"], model["wanted"], model["ready"]) == ("tiny", 1, 1)
    assert (status["cluster"], status["unmanaged"]) == ("test", [])
    [pool] = status["pools"]
    assert (pool["name"], pool["max_nodes"]) == ("lab", 4)
    assert [m["instance_id"] for m in pool["orphans"]] == ["i-lost"]
    assert [(m["instance_id"], m["ledger_id"]) for m in pool["foreign_machines"]] == [
        ("i-other", "f" * 32)
    ]
    assert [node["id"] for node in status["nodes"]] == [known]
    assert any(entry["subject"].startswith("node:") for entry in status["recent"])
    told = " ".join(" ".join(render(status, 100, Paint(False))).split())
    assert "not configured any more" not in told
    assert "not ended, for the controller only observes" in told
    assert "OBSERVE ONLY" in explain(status, status["models"], 100, Paint(False))[0]


async def test_a_machine_that_its_provider_no_longer_lists_is_told_by_the_observer(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url, fault_linger=0.0)
    async with living(settings, Core) as operator:
        await operator.until(serves)
    for _ in range(2):
        await crash(settings, Broken, ControlLoopFailed)
    [node_id] = world.machines
    world.kill(node_id)
    async with living(settings, Broken) as operator:
        status = await observed(operator, world)
    [node] = status["nodes"]
    assert "is not on the provider's list" in node["held"][-1]
