"""Promises about more clients than there are descriptors."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from elasticd.ops import door, limits
from tests.gateway.harness import Connection, ScriptedEngine, StubEngine, eventually, stand
from tests.gateway.raw import connected

ASK = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
STREAM = {"model": "m", "messages": [], "stream": True, "max_tokens": 100_000}
MOST = 16


@pytest.fixture(autouse=True)
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "descriptors", lambda: 64 + 2 * MOST)
    monkeypatch.setattr(door, "_YOUNG", 0.0)
    monkeypatch.setattr(door, "_LOOK", 0.01)


async def test_idle_connections_make_room_and_a_running_stream_goes_on() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine, AsyncExitStack() as stack:
        await s.publish(engine.endpoint())
        running = await stack.enter_async_context(connected(s.gateway.port))
        await running.post(STREAM)
        await running.until(b"data: ")
        for _ in range(3 * MOST):
            await stack.enter_async_context(connected(s.gateway.port))
        late = await stack.enter_async_context(connected(s.gateway.port))
        await late.send(ASK)
        assert (await late.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await running.until(b"data: ")
        told = [e for e in s.logs if e["event"] == "connections at their limit"]
        assert [(e["limit"], e["listener"]) for e in told] == [(MOST, "gateway")]


async def test_where_all_are_busy_new_ones_wait_until_one_is_done() -> None:
    async def answers_at_its_end(c: Connection) -> None:
        await c.until_client_leaves()

    async with (
        stand() as s,
        ScriptedEngine(answers_at_its_end) as engine,
        AsyncExitStack() as stack,
    ):
        await s.publish(engine.endpoint(slots=2 * MOST))
        busy = [await stack.enter_async_context(connected(s.gateway.port)) for _ in range(MOST)]
        for client in busy:
            await client.post({"model": "m"})
        await eventually(lambda: len(engine.connections) == MOST, "all are under way")
        late = await stack.enter_async_context(connected(s.gateway.port))
        await late.send(ASK)
        await eventually(
            lambda: any(e["event"] == "connections at their limit" for e in s.logs), "it waits"
        )
        assert not any(c.left.is_set() for c in engine.connections)
        busy[0].reset()
        assert (await late.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert sum(c.left.is_set() for c in engine.connections) == 1
