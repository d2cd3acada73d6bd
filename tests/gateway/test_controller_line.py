"""Promises towards the controller: true reports, and service while it is away."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from elasticd.gateway import Gateway
from elasticd.gateway.table_store import load_table, save_table
from tests.gateway.harness import Connection, ScriptedEngine, StubEngine, eventually, stand
from tests.traffic.tables import endpoint, route, table


async def test_reports_tell_what_waits_runs_and_came() -> None:
    async def script(c: Connection) -> None:
        await may_end.wait()
        await c.json("200 OK", {})

    may_end = asyncio.Event()
    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint("a", slots=2), endpoint("b", slots=0))

        async def one() -> int:
            async with s.post() as answer:
                return answer.status

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(one())
            report = await s.report(lambda r: r["models"][0]["queued"] == 1, "one waits")
            (model,) = report["models"]
            assert (model["model"], model["in_flight"], model["peak"]) == ("m", 2, 3)
            assert report["loads"] == [
                {"replica_id": "a", "in_flight": 2},
                {"replica_id": "b", "in_flight": 0},
            ]
            assert report["v"] == 1
            assert report["broken"] == []
            may_end.set()
        await s.report(
            lambda r: r["loads"][0]["in_flight"] == 0 and r["models"][0]["arrivals"] == 0,
            "nothing runs any more",
        )
        assert sum(r["models"][0]["arrivals"] for r in s.controller.reports) == 3


async def test_arrivals_are_not_lost_while_the_controller_is_away() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        await s.report(lambda r: r["version"] == 1, "the first report")
        await s.controller.stop()
        for _ in range(3):
            async with s.post(max_tokens=1) as answer:
                assert answer.status == 200
        await s.controller.start()
        await s.report(lambda r: r["models"][0]["arrivals"] == 3, "all three are told")


async def test_it_serves_while_the_controller_is_away_and_follows_when_it_is_back() -> None:
    async with stand() as s, StubEngine() as old, StubEngine() as new:
        await s.publish(old.endpoint("old"))
        await s.controller.stop()
        async with s.post(max_tokens=1) as answer:
            assert answer.headers["X-Elasticd-Replica"] == "old"
        await s.controller.start()
        await s.publish(new.endpoint("new"))
        async with s.post(max_tokens=1) as answer:
            assert answer.headers["X-Elasticd-Replica"] == "new"


async def test_a_restarted_gateway_serves_from_disk_without_the_controller() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint(key="secret"))
        await s.controller.stop()
        file = s.config.table_file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with Gateway(s.config) as second:
            body = {"model": "m", "prompt": "hi", "max_tokens": 1}
            url = f"http://127.0.0.1:{second.port}/v1/completions"
            async with s.client.post(url, json=body) as answer:
                assert answer.status == 200


async def test_a_new_epoch_of_the_controller_is_followed() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish()
        s.controller.publish(table(route(engine.endpoint()), epoch=2, version=1))
        await eventually(lambda: s.controller.followed == (2, 1), "the new epoch is followed")
        async with s.post(max_tokens=1) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 99}', '{"v": 1}', "\xff"])
def test_a_table_file_that_makes_no_sense_is_no_table(tmp_path: Path, text: str) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(text.encode("latin-1"))
    assert load_table(file) is None


def test_a_table_is_read_as_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "gateway" / "table.json"
    kept = table(route(endpoint("a"), endpoint("b")))
    save_table(file, kept)
    save_table(file, kept)
    assert load_table(file) == kept
    assert [p.name for p in file.parent.iterdir()] == ["table.json"]
