"""The journal over the admin API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from elasticd.ops import admin_events
from elasticd.ops.admin import reading_app
from elasticd.ops.admin_site import serve_tcp
from tests.cli.real_admin import Controller

REASON = [("node:n-1", "ready → draining: interruption notice")]


@pytest.fixture
def controller() -> Controller:
    return Controller({})


@pytest.fixture
async def get(controller: Controller, tmp_path: Path) -> AsyncIterator[Any]:
    async with (
        serve_tcp(reading_app(controller.ports), "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def ask(**query: Any) -> Any:
            async with session.get("/api/v1/events", params=query) as answer:
                return answer.status, await answer.json()

        yield ask


async def test_entries_come_in_pages_and_what_tells_nothing_is_left_out(
    controller: Controller, get: Any
) -> None:
    for number in range(5):
        controller.write(100.0 + number, (), REASON if number != 1 else [])
    status, first = await get(limit=2)
    assert (status, [e["seq"] for e in first["entries"]]) == (200, [1])
    assert (first["next_seq"], first["more"]) == (2, True)
    _, rest = await get(since_seq=2, limit=50)
    assert [entry["seq"] for entry in rest["entries"]] == [3, 4, 5]
    assert rest["entries"][0]["lines"] == [{"subject": "node:n-1", "text": REASON[0][1]}]
    assert (rest["next_seq"], rest["more"]) == (5, False)


async def test_since_leaves_out_what_is_older(controller: Controller, get: Any) -> None:
    controller.write(100.0, (), REASON)
    controller.write(200.0, (), REASON)
    assert [e["at"] for e in (await get(since=150))[1]["entries"]] == [200.0]


async def test_a_reader_who_waits_hears_of_the_next_entry(
    controller: Controller, get: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_events, "_LOOK", 0.001)
    looked = asyncio.Event()
    journal = controller.journal

    async def watched(*query: Any) -> Any:
        looked.set()
        return await journal(*query)

    monkeypatch.setattr(controller, "journal", watched)
    waiting = asyncio.ensure_future(get(wait=50))
    async with asyncio.timeout(20.0):
        await looked.wait()
    controller.write(100.0, (), REASON)
    async with asyncio.timeout(20.0):
        _, answer = await waiting
    assert [entry["seq"] for entry in answer["entries"]] == [1]


async def test_nothing_new_is_an_empty_page_that_goes_on_where_it_was(get: Any) -> None:
    assert await get(since_seq=7) == (200, {"entries": [], "next_seq": 7, "more": False})


@pytest.mark.parametrize(
    "query", [{"since_seq": "-1"}, {"since": "nan"}, {"limit": "0"}, {"wait": "long"}]
)
async def test_a_query_with_no_number_is_refused(get: Any, query: dict[str, str]) -> None:
    status, body = await get(**query)
    assert (status, "a number" in body["error"]) == (400, True)


async def test_who_waits_is_told_when_the_daemon_stops(controller: Controller) -> None:
    looked = asyncio.Event()
    journal = controller.journal

    async def watched(seq: int, since: float, limit: int) -> Any:
        looked.set()
        return await journal(seq, since, limit)

    controller.journal = watched  # type: ignore[method-assign]
    async with aiohttp.ClientSession() as session:
        async with serve_tcp(reading_app(controller.ports), "127.0.0.1", 0) as port:
            url = f"http://127.0.0.1:{port}/api/v1/events?since_seq=3&wait=50"
            waiting = asyncio.ensure_future(session.get(url))
            async with asyncio.timeout(20.0):
                await looked.wait()
        async with asyncio.timeout(20.0):
            answer = await waiting
        assert (answer.status, await answer.json()) == (503, {"error": "the daemon is stopping"})
