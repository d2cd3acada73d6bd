"""The controller as a whole, with the real core: serves, survives, gives back, fails loudly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.cluster_secret import ClusterSecret
from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event
from elasticd.errors import UsageError
from elasticd.runtime.controller import run_controller
from elasticd.runtime.ledger import read_journal_file
from elasticd.runtime.loop import ControlLoopFailed
from elasticd.runtime.state_lock import StateDirInUse
from tests.runtime.fakes import ScriptedCore
from tests.runtime.world import World, agent_of, config, living, wishes


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def agent_url(world: World) -> AsyncIterator[str]:
    async with agent_of(world) as url:
        yield url


def serves(status: Any) -> bool:
    return any(model["ready"] >= 1 for model in status["models"])


async def test_it_rents_a_machine_starts_a_replica_and_publishes_it(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        status = await operator.until(serves)
        await operator.until(lambda ready: ready["ready"], "/readyz")
        _, routes = await operator.ask("GET", "/internal/v1/table?epoch=0&version=0&wait=5")
    secret = ClusterSecret.load_or_create(tmp_path)
    [request] = world.launched
    assert request.ledger_id == status["controller"]["ledger_id"] == world.contexts[0].ledger_id
    assert request.bootstrap == f"join {request.node_id} {secret.join_token(request.node_id)} 1"
    assert world.tokens == {f"Bearer {secret.agent_token}"}
    assert world.contexts[0].state_dir == tmp_path / "pools" / "lab"
    [endpoint] = routes["models"][0]["endpoints"]
    key = secret.engine_key(endpoint["replica_id"], endpoint["incarnation"])
    assert endpoint["key"] == key == world.engines[endpoint["replica_id"]].key
    assert status["providers"]["lab"]["calls"]["launch"] == {"ok": 1}
    assert status["agent"]["seen_age"] is not None


async def test_a_restart_finds_its_machines_and_replicas_and_buys_nothing(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url)
    async with living(settings, Core) as operator:
        first = await operator.until(serves)
    assert len(world.machines) == 1  # a stop keeps them
    async with living(settings, Core) as operator:
        second = await operator.until(
            lambda s: (
                serves(s) and s["cluster_complete"] and s["pools"][0]["listed_age"] is not None
            )
        )
        status, _ = await operator.ask("GET", "/internal/v1/table?epoch=1&version=99&wait=5")
    assert (first["controller"]["epoch"], second["controller"]["epoch"]) == (1, 2)
    assert [r["id"] for r in second["replicas"]] == [r["id"] for r in first["replicas"]]
    assert status == 200
    assert len(world.launched) == 1


async def test_the_journal_tells_what_was_done_and_why(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        await operator.until(serves)
    entries = read_journal_file(tmp_path)
    events = [event["type"] for entry in entries for event in entry.events]
    actions = [action["type"] for entry in entries for action in entry.plan["actions"]]
    reasons = [reason["text"] for entry in entries for reason in entry.plan["reasons"]]
    assert events[0] == "Configured"
    assert "LaunchAnswered" in events
    assert [a for a in actions if a != "PublishTable"] == ["LaunchNode", "StartReplica"]
    assert any("engine healthy" in text for text in reasons)


async def test_down_gives_everything_back_and_tells_how_much_is_left(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        before = await operator.until(serves)
        assert before["down"] is None
        assert (await operator.ask("POST", "/api/v1/down", json={"by": "test"}))[0] == 202
        await operator.until(lambda s: s["replicas"][0]["phase"] == "draining")
        idle = [{"replica_id": r["id"], "in_flight": 0} for r in before["replicas"]]
        await operator.ask("POST", "/internal/v1/report", json={"v": 1, "loads": idle})
        await operator.until(lambda s: s["down"] == {"left": 0})
    assert world.machines == {}


async def test_a_drill_takes_a_machine_and_another_one_comes(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        status = await operator.until(serves)
        [node] = [n["id"] for n in status["nodes"]]
        begin = node[: len(node) - 1]
        asked = {"notice": None, "by": "ann"}
        taken = await operator.ask("POST", f"/api/v1/nodes/{begin}/preempt", json=asked)
        assert taken == (
            200,
            {
                "node_id": node,
                "instance_id": f"i-{node}",
                "pool": "lab",
                "notice": None,
                "already": False,
            },
        )
        status = await operator.until(lambda s: serves(s) and len(world.launched) == 2)
        told = {"subject": f"node:{node}", "text": "a drill takes its machine at once (by ann)"}
        assert any(told.items() <= reason.items() for reason in status["recent"])
        missing, answer = await operator.ask("POST", "/api/v1/nodes/nobody/preempt")
        assert missing == 404
        assert "no node 'nobody'; nodes there are: n-" in answer["error"]


async def test_of_two_drills_the_earlier_deadline_holds_and_the_second_is_told_so(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        status = await operator.until(serves)
        node = status["nodes"][0]["id"]
        await operator.ask("POST", f"/api/v1/nodes/{node}/drain", json={"seconds": 60})
        await operator.until(lambda s: s["nodes"][0]["phase"] == "draining")
        world.reclaimed.clear()
        url = f"/api/v1/nodes/{node}/preempt"
        _, later = await operator.ask("POST", url, json={"notice": 900})
        assert later["already"]
        assert later["notice"] <= 60
        _, sooner = await operator.ask("POST", url, json={"notice": 20})
        assert (sooner["already"], sooner["notice"]) == (False, 20)
    assert world.reclaimed == [900, 20]


async def test_a_provider_that_hangs_holds_up_no_answer_and_no_stop(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        await operator.until(serves)
        world.hanging = True
        asked = world.asked
        await operator.until(lambda _: world.asked > asked)
        assert serves(await operator.status())
        assert (await operator.ask("GET", "/readyz"))[0] == 200


async def test_a_second_controller_of_the_same_state_is_refused(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url)
    async with living(settings, Core) as operator:
        await operator.until(serves)
        with pytest.raises(StateDirInUse):
            await run_controller(settings, Core)
        await operator.status()  # the first one still answers


async def test_a_fault_in_the_core_turns_health_red_and_ends_the_controller(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    def decide(now: float, events: Sequence[Event]) -> Plan:
        raise ZeroDivisionError("a bug")

    settings = config(world, tmp_path, agent_url)
    broken = living(settings, lambda *_: ScriptedCore(decide))
    operator = await broken.__aenter__()
    health = await operator.until(lambda h: not h["alive"], "/healthz")
    assert "a bug" in health["problem"]
    with pytest.raises(ControlLoopFailed, match="a bug") as failed:
        await broken.__aexit__(None, None, None)
    assert failed.value.exit_code == 1
    assert world.launched == []


async def test_a_damaged_key_of_the_cluster_is_a_refusal(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "cluster.key").write_text("half of i")
    with pytest.raises(UsageError, match="not a cluster key"):
        await run_controller(config(world, tmp_path, agent_url), Core)


async def test_a_watch_that_ends_is_told_and_harms_nothing_else(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    world.notices = lambda: None  # type: ignore[attr-defined]
    async with living(config(world, tmp_path, agent_url), Core) as operator:
        await operator.until(serves)
        assert (await operator.ask("GET", "/healthz"))[0] == 200


async def test_an_agent_that_is_away_keeps_it_alive_but_not_ready(
    world: World, tmp_path: Path
) -> None:
    async with living(config(world, tmp_path, "http://127.0.0.1:9"), Core) as operator:
        ready = await operator.until(lambda r: r["waiting_for"] != [], "/readyz")
        assert (await operator.ask("GET", "/healthz"))[0] == 200
        status = await operator.until(lambda s: s["agent"]["error"])
    assert not ready["ready"]
    assert status["agent"]["seen_age"] is None


async def test_it_does_not_start_over_machines_that_a_renamed_cluster_would_hide(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    here = config(world, tmp_path, agent_url)
    async with living(here, Core) as operator:
        await operator.until(serves)
    plain = wishes(world)
    renamed = replace(here, wishes=replace(plain, spec=replace(plain.spec, cluster="renamed")))
    with pytest.raises(UsageError, match="put the old name back"):
        await run_controller(renamed, Core)
    assert len(world.launched) == 1


async def test_machines_of_a_pool_that_was_taken_out_are_kept_and_told_of(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    here = config(world, tmp_path, agent_url)
    async with living(here, Core) as operator:
        status = await operator.until(serves)
        [node] = [n["id"] for n in status["nodes"]]
    plain = wishes(world)
    [pool] = plain.spec.pools
    other = replace(pool, name="another")
    changed = replace(
        here,
        wishes=replace(
            plain,
            spec=replace(plain.spec, pools=(other,)),
            pools={"another": plain.pools[pool.name]},
        ),
    )
    async with living(changed, Core) as operator:
        status = await operator.until(lambda s: s["unmanaged"])
        assert status["unmanaged"] == [{"node_id": node, "pool": pool.name}]
        assert [n["id"] for n in status["nodes"] if n["phase"] != "gone"] == [node]
    assert f"{node}" in world.machines
    async with living(here, Core) as operator:  # the pool is back, and with it its machine
        status = await operator.until(serves)
        assert status["unmanaged"] == []
        assert [n["id"] for n in status["nodes"]] == [node]
    assert len(world.launched) == 1


async def test_a_crash_after_a_down_stays_down_and_a_start_by_hand_serves_again(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    here = config(world, tmp_path, agent_url)
    async with living(here, Core) as operator:
        await operator.until(serves)
        await operator.ask("POST", "/api/v1/down", json={"by": "a person"})
        await operator.until(lambda s: s["down"] is not None)
        await operator.until(
            lambda r: not r["ready"] and "by hand" in r["waiting_for"][0], "/readyz"
        )
    async with living(here, Core) as operator:
        status = await operator.until(lambda s: s["models"] and not serves(s))
        assert status["down"] is not None
    async with living(replace(here, serve_again=True), Core) as operator:
        status = await operator.until(serves)
        assert status["down"] is None
