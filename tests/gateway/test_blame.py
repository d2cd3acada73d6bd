"""Promises about whose fault a failure is: a client's mistake never harms a replica, and a
replica's fault never reaches a client as long as another one can do better."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    StubEngine,
    error_of,
    events_of,
    stand,
)

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 1024 tokens. However, …",
        "type": "BadRequestError",
        "param": "messages",
        "code": 400,
    }
}


async def fine(c: Connection) -> None:
    await c.json("200 OK", {"fine": True})


def says(status: str, message: str) -> Any:
    async def script(c: Connection) -> None:
        await c.json(status, {"error": {"message": message, "code": int(status[:3])}})

    return script


@pytest.mark.parametrize("stream", [False, True])
async def test_bad_requests_pass_unchanged_and_leave_the_replica_in_rotation(stream: bool) -> None:
    async def script(c: Connection) -> None:
        if "too long" in c.request.body.decode():
            await c.json("400 Bad Request", TOO_LONG)
        else:
            await fine(c)

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        for _ in range(20):
            async with s.post(prompt="too long", stream=stream) as answer:
                assert answer.status == 400
                assert await answer.read() == json.dumps(TOO_LONG).encode()
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}
        assert len(engine.connections) == 21, "each was asked once"
        assert not any(r["broken"] for r in s.controller.reports)
        assert not any(e["log_level"] == "warning" for e in s.logs)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 499])
async def test_no_4xx_counts_against_a_replica_or_is_tried_elsewhere(status: int) -> None:
    async with (
        stand() as s,
        ScriptedEngine(says(f"{status} Because", "no")) as engine,
        ScriptedEngine(says(f"{status} Because", "no")) as other,
    ):
        await s.publish(engine.endpoint("a", slots=1), other.endpoint("b", slots=1))
        for _ in range(5):
            async with s.post() as answer:
                assert answer.status == status
                assert (await answer.json())["error"]["message"] == "no"
        assert (len(engine.connections), len(other.connections)) == (5, 0)
        assert not any(r["broken"] for r in s.controller.reports)


@pytest.mark.parametrize("status", ["500 Oops", "502 Bad Gateway", "504 Gateway Timeout"])
async def test_a_fault_that_only_one_replica_has_costs_no_request(status: str) -> None:
    async with (
        stand() as s,
        ScriptedEngine(says(status, "CUDA error")) as bad,
        ScriptedEngine(fine) as good,
    ):
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        for _ in range(20):
            async with s.post() as answer:
                assert await answer.json() == {"fine": True}
                assert answer.headers["X-Elasticd-Replica"] == "b"
        assert len(bad.connections) < 10, "who alone fails is set aside"


async def test_a_fault_of_the_request_is_tried_once_more_and_passes_unchanged() -> None:
    """It would walk through the fleet, and take every replica out of rotation on its way."""

    async def script(c: Connection) -> None:
        if b"poison" in c.request.body:
            await c.json("500 Oops", {"error": {"message": "list index out of range"}})
        else:
            await fine(c)

    async with (
        stand() as s,
        ScriptedEngine(script) as one,
        ScriptedEngine(script) as two,
        ScriptedEngine(script) as three,
    ):
        engines = (one, two, three)
        await s.publish(*(e.endpoint(f"r{i}") for i, e in enumerate(engines)))
        for asked in range(1, 4):
            async with s.post(prompt="poison") as answer:
                assert answer.status == 500
                assert (await answer.json()) == {"error": {"message": "list index out of range"}}
            assert sum(len(e.connections) for e in engines) == 2 * asked
        async with s.post() as answer:
            assert answer.headers["X-Elasticd-Replica"] == "r0", "nobody was set aside"
        assert not any(r["broken"] for r in s.controller.reports)


async def test_a_lone_replica_is_asked_once_and_its_fault_passes_at_once() -> None:
    async with stand() as s, ScriptedEngine(says("500 Oops", "x")) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            assert answer.status == 500
            assert (await answer.json())["error"]["message"] == "x"
        assert len(engine.connections) == 1


async def test_a_fault_is_told_when_the_other_replica_does_not_come_free() -> None:
    async def waits(c: Connection) -> None:
        await c.until_client_leaves()

    async with (
        stand() as s,
        ScriptedEngine(waits) as busy,
        ScriptedEngine(says("500 Oops", "x")) as bad,
    ):
        await s.publish(busy.endpoint("a", slots=1), bad.endpoint("b", slots=1), max_wait=0.3)
        holder = s.client.post(s.url + "/v1/completions", json={"model": "m"})
        async with asyncio.TaskGroup() as tasks:
            held = tasks.create_task(holder.__aenter__())
            await s.report(lambda r: r["models"][0]["in_flight"] == 1, "the first one is full")
            async with s.post() as answer:
                assert answer.status == 500
                assert (await answer.json())["error"]["message"] == "x"
            held.cancel()


async def test_a_fault_and_then_a_broken_connection_give_the_client_the_fault() -> None:
    async def resets(c: Connection) -> None:
        c.reset()

    async with (
        stand() as s,
        ScriptedEngine(says("500 Oops", "x")) as bad,
        ScriptedEngine(resets) as worse,
    ):
        await s.publish(bad.endpoint("a"), worse.endpoint("b"))
        async with s.post() as answer:
            assert answer.status == 500
            assert (await answer.json())["error"]["message"] == "x"


STOPPING = "cannot schedule new futures after shutdown"
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@pytest.mark.parametrize("message", [STOPPING, DEAD])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_stops_or_is_dead_costs_no_request(message: str, stream: bool) -> None:
    """It still answers, with 500 to everything new, and its health check is still fine."""
    async with (
        stand() as s,
        ScriptedEngine(says("500 Internal Server Error", message)) as one,
        ScriptedEngine(says("500 Internal Server Error", message)) as two,
        StubEngine() as good,
    ):
        await s.publish(one.endpoint("a"), two.endpoint("b"), good.endpoint("c"))
        for _ in range(10):
            async with s.post(stream=stream, max_tokens=2) as answer:
                assert answer.status == 200
                assert answer.headers["X-Elasticd-Replica"] == "c"
                await answer.read()
        report = await s.report(lambda r: bool(r["broken"]), "the controller hears of them")
        assert {b["replica_id"] for b in report["broken"]} <= {"a", "b"}


async def test_a_stream_whose_first_event_says_that_the_engine_is_dead_starts_elsewhere() -> None:
    async def dies(c: Connection) -> None:
        await c.head()
        await c.chunk(b'data: {"error": {"message": "%b"}}\n\n' % DEAD.encode())
        await c.chunk(b"data: [DONE]\n\n")
        await c.end()

    async with stand() as s, ScriptedEngine(dies) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        async with s.post(stream=True, max_tokens=2) as answer:
            assert answer.headers["X-Elasticd-Replica"] == "b"
            events = events_of(await answer.read())
        assert events[-1] == "[DONE]"
        assert not any("error" in e for e in events)


async def test_a_text_that_speaks_of_dead_engines_is_a_text() -> None:
    async def quotes(c: Connection) -> None:
        await c.json("200 OK", {"choices": [{"text": DEAD + STOPPING}], "error": None})

    async with stand() as s, ScriptedEngine(quotes) as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert (await answer.json())["choices"][0]["text"] == DEAD + STOPPING


async def test_a_request_that_kills_engines_is_given_up() -> None:
    async with (
        stand(max_losses=2) as s,
        ScriptedEngine(says("500 Internal Server Error", DEAD)) as one,
        ScriptedEngine(says("500 Internal Server Error", DEAD)) as two,
        ScriptedEngine(fine) as three,
    ):
        await s.publish(one.endpoint("a"), two.endpoint("b"), three.endpoint("c"))
        async with s.post() as answer:
            assert answer.status == 502
            assert error_of(await answer.read())["code"] == "replica_lost"
        assert three.connections == []


async def test_another_engine_behind_a_replicas_address_is_not_taken_for_it() -> None:
    """Its guard refuses our key; the client's key is not to blame."""
    async with (
        stand() as s,
        ScriptedEngine(says("401 Unauthorized", "wrong or missing key")) as stranger,
        ScriptedEngine(fine) as good,
    ):
        await s.publish(stranger.endpoint("a"), good.endpoint("b"))
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}
        report = await s.report(lambda r: bool(r["broken"]), "the controller hears of it")
        assert "another engine" in report["broken"][0]["message"]
