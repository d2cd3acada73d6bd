"""The changing half of the admin API: what is checked, what the loop is told, what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from elasticd.core.events import (
    AdoptRequested,
    DrainRequested,
    HoldReleased,
    ScaleHeld,
    UndrainRequested,
)
from elasticd.ops.admin import full_app
from elasticd.ops.admin_site import serve_unix
from tests.cli.real_admin import Controller

MODEL = "组/qwen:14b"
NODES = [
    {"id": "node-ab12-1-1", "phase": "ready"},
    {"id": "node-ab12-1-12", "phase": "draining"},
    {"id": "node-ab12-1-3", "phase": "terminating", "reason": "no replica for 120 s"},
    {"id": "node-ab12-1-4", "phase": "requested"},
    {
        **{"id": "node-cd34-1-5", "phase": "draining", "reason": "interruption notice of 30 s"},
        **{"seconds_left": 22.0, "drain_asked": False},
    },
]


@pytest.fixture
def controller() -> Controller:
    models = [{"name": MODEL, "max_replicas": 4}, {"name": "tiny"}]
    return Controller({"nodes": NODES, "models": models, "down": None})


@pytest.fixture
async def ask(controller: Controller, tmp_path: Path) -> AsyncIterator[Any]:
    path = tmp_path / "admin.sock"
    connector = aiohttp.UnixConnector(str(path))
    async with (
        serve_unix(full_app(controller.ports), path),
        aiohttp.ClientSession("http://admin", connector=connector) as session,
    ):

        async def post(url: str, **body: Any) -> tuple[int, dict[str, Any]]:
            async with session.post(url, json=body) as answer:
                return answer.status, await answer.json()

        yield post


async def test_a_drain_is_told_to_the_loop_with_its_time_and_who_asked(
    controller: Controller, ask: Any
) -> None:
    status, body = await ask("/api/v1/nodes/node-ab12-1-1/drain", seconds=30, by="ann")
    assert (status, body["node_id"], body["seconds"]) == (202, "node-ab12-1-1", 30.0)
    await ask("/api/v1/nodes/node-ab12-1-12/drain", seconds=None)
    assert controller.emitted == [
        DrainRequested("node-ab12-1-1", 30.0, "ann"),
        DrainRequested("node-ab12-1-12", 120.0, "admin API"),
    ]


async def test_a_node_may_be_named_by_an_unmistakable_beginning(
    controller: Controller, ask: Any
) -> None:
    assert (await ask("/api/v1/nodes/node-ab12-1-12/undrain", by="ann"))[0] == 202
    status, body = await ask("/api/v1/nodes/node-ab12/drain", seconds=1)
    assert status == 400
    assert "may be any of node-ab12-1-1, node-ab12-1-12, node-ab12-1-4" in body["error"]
    assert controller.emitted == [UndrainRequested("node-ab12-1-12", "ann")]


@pytest.mark.parametrize(
    ("url", "status", "told"),
    [
        ("node-ab12-1-9/drain", 404, "did you mean `node-ab12-1-"),
        ("zzz/drain", 404, "nodes there are: node-ab12-1-1, node-ab12-1-12, node-ab12-1-4"),
        (
            "node-cd34-1-5/undrain",
            409,
            "nobody asked for the drain of node node-cd34-1-5: interrup",
        ),
        ("node-ab12-1-3/drain", 409, "is terminating already: no replica for 120 s"),
        ("node-ab12-1-4/drain", 409, "has no machine yet"),
        ("node-ab12-1-1/undrain", 409, "is ready, not draining"),
    ],
)
async def test_a_drain_that_cannot_be_is_refused_and_says_why(
    controller: Controller, ask: Any, url: str, status: int, told: str
) -> None:
    code, body = await ask(f"/api/v1/nodes/{url}")
    assert code == status
    assert told in body["error"]
    assert controller.emitted == []


async def test_of_two_ends_the_earlier_is_told_to_who_asks_for_a_later_one(ask: Any) -> None:
    status, body = await ask("/api/v1/nodes/node-cd34-1-5/drain", seconds=600)
    assert (status, body["seconds"]) == (202, 22.0)


@pytest.mark.parametrize("seconds", [-1, True, "2m", [1]])
async def test_a_drain_with_a_time_that_is_none_is_refused(
    controller: Controller, ask: Any, seconds: Any
) -> None:
    assert (await ask("/api/v1/nodes/node-ab12-1-1/drain", seconds=seconds))[0] == 400
    assert controller.emitted == []


async def test_a_model_is_held_and_given_back_whatever_its_name_holds(
    controller: Controller, ask: Any
) -> None:
    url = "/api/v1/models/%E7%BB%84%2Fqwen%3A14b/scale"
    assert (await ask(url, replicas=4, seconds=7200, by="ann"))[0] == 202
    assert (await ask(url, replicas=0, by="ann"))[0] == 202
    assert (await ask(url, replicas=None, by="ann"))[0] == 202
    assert controller.emitted == [
        ScaleHeld(MODEL, 4, 7200.0, "ann"),
        ScaleHeld(MODEL, 0, None, "ann"),
        HoldReleased(MODEL, "ann"),
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"replicas": 5},
            "5 replicas are more than its max_replicas 4; raise scaling.max_replicas",
        ),
        ({"replicas": -1}, "a whole number from 0"),
        ({"replicas": True}, "a whole number from 0"),
        ({"replicas": 1.5}, "a whole number from 0"),
        ({}, "a whole number, or null"),
        ({"replicas": 1, "seconds": 0}, "above 0"),
        ({"replicas": None, "seconds": 5}, "takes no time"),
    ],
)
async def test_a_count_that_cannot_be_held_is_refused_with_what_to_do(
    controller: Controller, ask: Any, body: dict[str, Any], told: str
) -> None:
    status, answer = await ask("/api/v1/models/%E7%BB%84%2Fqwen%3A14b/scale", **body)
    assert status == 400
    assert told in answer["error"]
    assert controller.emitted == []


async def test_an_unknown_model_is_refused_with_the_nearest_name(
    controller: Controller, ask: Any
) -> None:
    status, body = await ask("/api/v1/models/tinny/scale", replicas=1)
    assert (status, body["error"]) == (404, "no model 'tinny'; did you mean `tiny`?")


async def test_while_everything_is_given_back_nothing_else_is_taken(
    controller: Controller, ask: Any
) -> None:
    controller.told["down"] = {"left": 2}
    for url in ("nodes/node-ab12-1-1/drain", "nodes/node-ab12-1-12/undrain", "models/tiny/scale"):
        status, body = await ask(f"/api/v1/{url}", replicas=1)
        assert (status, "being given back" in body["error"]) == (409, True)
    assert controller.emitted == []


async def test_a_reload_answers_with_its_outcome(controller: Controller, ask: Any) -> None:
    controller.outcome = {"problem": "models[0].name: twice"}
    assert await ask("/api/v1/reload", by="ann") == (200, {"problem": "models[0].name: twice"})
    assert controller.reloads_asked_by == ["ann"]


def _with_foreign(controller: Controller) -> None:
    machine = {"instance_id": "i-1", "ledger_id": "left9"}
    pool = {"name": "spot", "foreign_machines": [machine], "adopted": ["old5"]}
    controller.told["pools"] = [pool, {"name": "other"}]


async def test_an_adoption_is_told_to_the_loop_with_who_asked(
    controller: Controller, ask: Any
) -> None:
    _with_foreign(controller)
    status, body = await ask("/api/v1/adopt", ledger_id="left9", by="ann")
    assert (status, body["machines"]) == (202, ["i-1"])
    assert controller.emitted == [AdoptRequested("left9", "ann")]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "ledger_id: the id of the ledger"),
        ({"ledger_id": 5}, 400, "ledger_id: the id of the ledger"),
        ({"ledger_id": "leff9"}, 404, "did you mean `left9`?"),
        ({"ledger_id": "zzz"}, 404, "ledgers with machines here: left9"),
        ({"ledger_id": "old5"}, 409, "has been adopted already"),
    ],
)
async def test_an_adoption_of_what_is_not_there_is_refused(
    controller: Controller, ask: Any, body: dict[str, Any], status: int, told: str
) -> None:
    _with_foreign(controller)
    answer, said = await ask("/api/v1/adopt", **body)
    assert answer == status
    assert told in said["error"]
    assert controller.emitted == []


async def test_nothing_is_adopted_while_everything_is_given_back(
    controller: Controller, ask: Any
) -> None:
    _with_foreign(controller)
    controller.told["down"] = {"left": 1}
    assert (await ask("/api/v1/adopt", ledger_id="left9"))[0] == 409
    assert controller.emitted == []


async def test_what_is_accepted_says_whether_a_restart_would_know_of_it(
    controller: Controller, tmp_path: Path
) -> None:
    written = [True, False]

    async def recorded() -> bool:
        assert controller.emitted, "it is asked before the loop was told"
        return written.pop(0)

    path = tmp_path / "other.sock"
    async with (
        serve_unix(full_app(replace(controller.ports, recorded=recorded)), path),
        aiohttp.ClientSession("http://admin", connector=aiohttp.UnixConnector(str(path))) as http,
    ):
        for expected in (True, False):
            async with http.post("/api/v1/down", json={}) as answer:
                assert answer.status == 202
                assert (await answer.json())["recorded"] is expected
