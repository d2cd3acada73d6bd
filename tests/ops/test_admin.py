"""The admin API over real sockets: who may do what, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from elasticd.core.events import (
    DemandSampled,
    DownRequested,
    EndpointBroken,
    Event,
    GatewayBegan,
    LoadSampled,
    RequestsMoved,
)
from elasticd.core.events import ReplicaLoad as Load
from elasticd.ops.admin import full_app, reading_app
from elasticd.ops.admin_ports import AdminPorts, DrillRefused
from elasticd.ops.admin_site import serve_tcp, serve_unix
from elasticd.ops.metrics import RequestTotals
from elasticd.routing_table import RoutingTable, table_from_json

TABLE = RoutingTable(3, 7, ())


class Controller:
    """What the API is given; remembers what it was asked."""

    def __init__(self) -> None:
        self.problem = ""
        self.waiting: list[str] = []
        self.events: list[Event] = []
        self.drills: list[tuple[str, float | None, str]] = []
        self.drill_error: DrillRefused | None = None
        self.polls: list[tuple[int, int, float]] = []
        self.table: RoutingTable | None = TABLE
        self.requests = RequestTotals()

    async def wait_for_other(self, epoch: int, version: int, wait: float) -> RoutingTable | None:
        self.polls.append((epoch, version, wait))
        return self.table

    async def preempt(self, node_id: str, notice: float | None, by: str) -> dict[str, Any]:
        self.drills.append((node_id, notice, by))
        if self.drill_error is not None:
            raise self.drill_error
        return {"node_id": node_id}

    @property
    def ports(self) -> AdminPorts:
        return AdminPorts(
            status=lambda: {"cluster": "测试"},
            problem=lambda: self.problem,
            waiting_for=lambda: self.waiting,
            emit=self.events.append,
            preempt=self.preempt,
            tables=self,
            journal=self.journal,
            reload=self.reload,
            now=lambda: 1234.5,
            requests=self.requests,
        )

    async def journal(self, _since_seq: int, _since: float, _limit: int) -> list[Any]:
        return []

    async def reload(self) -> dict[str, Any]:
        return {"problem": ""}


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
async def unix(controller: Controller, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    path = tmp_path / "admin.sock"
    connector = aiohttp.UnixConnector(str(path))
    async with (
        serve_unix(full_app(controller.ports), path),
        aiohttp.ClientSession("http://admin", connector=connector) as session,
    ):
        yield session


@pytest.fixture
async def tcp(controller: Controller) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serve_tcp(reading_app(controller.ports), "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


async def asked(session: aiohttp.ClientSession, method: str, path: str, **more: Any) -> Any:
    async with session.request(method, path, **more) as answer:
        return answer.status, (await answer.json() if answer.status != 204 else None)


async def test_health_is_that_of_the_loop(
    controller: Controller, tcp: aiohttp.ClientSession
) -> None:
    assert await asked(tcp, "GET", "/healthz") == (200, {"alive": True, "problem": ""})
    controller.problem = "stopped by a fault"
    status, body = await asked(tcp, "GET", "/healthz")
    assert (status, body["problem"]) == (503, "stopped by a fault")
    assert (await asked(tcp, "GET", "/readyz"))[0] == 503


async def test_ready_says_what_it_waits_for(
    controller: Controller, tcp: aiohttp.ClientSession
) -> None:
    assert (await asked(tcp, "GET", "/readyz"))[0] == 200
    controller.waiting = ["a replica of model 'tiny'"]
    expected = {"ready": False, "waiting_for": ["a replica of model 'tiny'"]}
    assert await asked(tcp, "GET", "/readyz") == (503, expected)


async def test_status_is_the_same_on_both_sockets(
    unix: aiohttp.ClientSession, tcp: aiohttp.ClientSession
) -> None:
    for session in (unix, tcp):
        assert await asked(session, "GET", "/api/v1/status") == (200, {"cluster": "测试"})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/down"),
        ("POST", "/api/v1/nodes/node-1/preempt"),
        ("POST", "/api/v1/nodes/node-1/drain"),
        ("POST", "/api/v1/nodes/node-1/undrain"),
        ("POST", "/api/v1/models/tiny/scale"),
        ("POST", "/api/v1/reload"),
        ("GET", "/internal/v1/table"),
        ("POST", "/internal/v1/report"),
    ],
)
async def test_over_tcp_nothing_is_changed_and_no_key_is_shown(
    controller: Controller, tcp: aiohttp.ClientSession, method: str, path: str
) -> None:
    status, body = await asked(tcp, method, path)
    assert status == 404
    assert path in body["error"]
    assert (controller.events, controller.drills, controller.polls) == ([], [], [])


async def test_down_is_told_to_the_loop_with_who_asked(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    assert (await asked(unix, "POST", "/api/v1/down", json={"by": "elasticd run"}))[0] == 202
    assert (await asked(unix, "POST", "/api/v1/down"))[0] == 202
    assert controller.events == [DownRequested("elasticd run"), DownRequested("admin API")]


async def test_a_drill_is_passed_on_with_or_without_notice(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    url = "/api/v1/nodes/node-1/preempt"
    assert await asked(unix, "POST", url, json={"notice": 30}) == (200, {"node_id": "node-1"})
    await asked(unix, "POST", url, json={"notice": None})
    await asked(unix, "POST", url)
    assert controller.drills == [
        ("node-1", 30, "admin API"),
        ("node-1", None, "admin API"),
        ("node-1", None, "admin API"),
    ]


@pytest.mark.parametrize("body", ['{"notice": -1}', '{"notice": true}', '{"notice": NaN}'])
async def test_a_drill_with_a_notice_that_is_no_time_is_refused(
    controller: Controller, unix: aiohttp.ClientSession, body: str
) -> None:
    status, answer = await asked(unix, "POST", "/api/v1/nodes/node-1/preempt", data=body)
    assert (status, answer) == (
        400,
        {"error": "notice: a number of seconds from 0, or null, is expected"},
    )
    assert controller.drills == []


async def test_a_drill_that_cannot_be_says_why(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    controller.drill_error = DrillRefused(409, "no drill here")
    answer = await asked(unix, "POST", "/api/v1/nodes/node-1/preempt", json={"notice": None})
    assert answer == (409, {"error": "no drill here"})


async def test_the_gateway_gets_the_table_or_no_content(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    query = "/internal/v1/table?epoch=2&version=5&wait=20"
    status, body = await asked(unix, "GET", query)
    assert (status, table_from_json(body), body["at"]) == (200, TABLE, 1234.5)
    controller.table = None
    assert await asked(unix, "GET", query) == (204, None)
    await asked(unix, "GET", "/internal/v1/table?wait=1e9")
    assert controller.polls == [(2, 5, 20.0), (2, 5, 20.0), (0, 0, 60.0)]


@pytest.mark.parametrize("query", ["epoch=x", "version=1.5", "wait=nan", "wait=soon"])
async def test_a_poll_with_no_number_is_refused(unix: aiohttp.ClientSession, query: str) -> None:
    status, body = await asked(unix, "GET", f"/internal/v1/table?{query}")
    assert status == 400
    assert "a number is expected" in body["error"]


async def test_a_report_becomes_events(controller: Controller, unix: aiohttp.ClientSession) -> None:
    report = {
        "v": 1,
        "models": [
            {"model": "tiny", "queued": 1, "in_flight": 2, "peak": 4, "arrivals": 3, "x": 0}
        ],
        "loads": [{"replica_id": "r-1", "in_flight": 2}],
        "broken": [{"replica_id": "r-2", "incarnation": 3, "message": "reset"}],
        "of a later version": True,
    }
    assert await asked(unix, "POST", "/internal/v1/report", json=report) == (204, None)
    assert controller.events == [
        DemandSampled("tiny", queued=1, in_flight=2, peak=4, arrivals=3),
        LoadSampled((Load("r-1", 2),)),
        EndpointBroken("r-2", 3, "reset"),
    ]


async def test_a_report_without_loads_says_nothing_of_them(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    await asked(unix, "POST", "/internal/v1/report", json={"v": 1})
    assert controller.events == []
    await asked(unix, "POST", "/internal/v1/report", json={"v": 1, "loads": []})
    assert controller.events == [LoadSampled(())]


async def test_what_became_of_requests_is_a_fact_and_a_metric(
    controller: Controller, unix: aiohttp.ClientSession, tcp: aiohttp.ClientSession
) -> None:
    async with tcp.get("/metrics") as before:
        assert "elasticd_requests_lost_total{" not in await before.text(), "nobody has told it"
    moved = {"replica_id": "r-1", "finished": 1, "continued": 41, "restarted": 2, "lost": 0}
    totals = {"model": "千问", "answered": 90, "continued": 41, "finished": 1, "lost": 3}
    for report in ({"moved": [moved], "totals": [totals]}, {}):
        told = {"v": 1, **report}
        assert await asked(unix, "POST", "/internal/v1/report", json=told) == (204, None)
    assert controller.events == [RequestsMoved("r-1", 1, 41, 2, 0)]
    async with tcp.get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        lines = (await answer.text()).splitlines()
    assert 'elasticd_requests_lost_total{model="千问"} 3.0' in lines
    assert 'elasticd_requests_continued_total{model="千问"} 41.0' in lines
    assert 'elasticd_requests_restarted_total{model="千问"} 0.0' in lines
    assert any(line.startswith("# HELP elasticd_requests_lost_total") for line in lines)


async def test_another_life_of_the_gateway_is_noticed(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    for life in ("one", "one", None, "two"):
        report = {"v": 1, "life": life}
        assert await asked(unix, "POST", "/internal/v1/report", json=report) == (204, None)
        assert controller.events == ([GatewayBegan()] if life == "two" else [])


GOOD = {"model": "tiny", "queued": 1, "in_flight": 2, "peak": 4, "arrivals": 3}


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "{}",
        '{"v": 2}',
        '{"v": 1, "models": {}}',
        '{"v": 1, "loads": [7]}',
        '{"v": 1, "moved": [{"replica_id": "r"}]}',
        '{"v": 1, "totals": [{"model": "m", "lost": -1}]}',
        *(f'{{"v": 1, "models": [{{"model": "m", "queued": {n}}}]}}' for n in ("-1", "1.5", "NaN")),
    ],
)
async def test_a_report_that_is_none_is_refused_as_a_whole(
    controller: Controller, unix: aiohttp.ClientSession, body: str
) -> None:
    status, answer = await asked(unix, "POST", "/internal/v1/report", data=body)
    assert status == 400
    assert answer["error"]
    assert controller.events == []


async def test_a_report_with_one_bad_part_changes_nothing(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    report = {"v": 1, "models": [GOOD, {**GOOD, "peak": "many"}]}
    assert (await asked(unix, "POST", "/internal/v1/report", json=report))[0] == 400
    assert controller.events == []


async def test_many_polls_at_once_hold_up_nobody(
    controller: Controller, unix: aiohttp.ClientSession
) -> None:
    never = asyncio.Event()

    async def wait_for_other(*_: Any) -> None:
        await never.wait()

    controller.wait_for_other = wait_for_other  # type: ignore[method-assign, assignment]
    polls = [
        asyncio.ensure_future(asked(unix, "GET", "/internal/v1/table?wait=50")) for _ in range(20)
    ]
    assert (await asked(unix, "GET", "/healthz"))[0] == 200
    never.set()
    assert await asyncio.gather(*polls) == [(204, None)] * 20
