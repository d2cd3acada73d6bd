"""Promises of the time before the first byte: a replica that fails is replaced invisibly."""

from __future__ import annotations

import asyncio
import json

import pytest

from elasticd.gateway import server
from tests.gateway.harness import Connection, ScriptedEngine, StubEngine, error_of, stand
from tests.traffic.tables import endpoint

DEAD = "http://127.0.0.1:9"  # the discard port: nothing listens


@pytest.mark.parametrize("fault", ["rst", "503"])
@pytest.mark.parametrize("stream", [False, True])
async def test_one_failing_replica_of_two_costs_no_request(fault: str, stream: bool) -> None:
    async with stand() as s, StubEngine(fault=fault) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        for _ in range(20):
            async with s.post(stream=stream, max_tokens=2) as answer:
                assert answer.status == 200
                assert answer.headers["X-Elasticd-Replica"] == "b"
                await answer.read()
        assert bad.counts["faults"] < 10, "a failing replica is set aside"
        if fault == "503":
            assert not any(r["broken"] for r in s.controller.reports), "it is only busy"
        else:
            assert bad.counts["faults"] >= 1


class Still:
    """A clock that stands: whoever is set aside stays so."""

    def now(self) -> float:
        return 1000.0


@pytest.mark.parametrize("fault", ["rst", "503", "refused"])
async def test_of_twenty_requests_only_the_first_meets_the_failing_replica(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "Clock", Still)
    async with stand() as s, StubEngine(fault=fault) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        if fault == "refused":
            await bad.replica.down()
        for number in range(20):
            async with s.post(stream=number % 2 == 0, max_tokens=2) as answer:
                assert answer.status == 200
                await answer.read()
        met = [e for e in s.logs if e["event"] == "replica failed before the first byte"]
        assert [e["replica"] for e in met] == ["a"]
        assert bad.counts["faults"] == (fault != "refused")


async def test_a_replica_that_refuses_connections_costs_no_request_and_is_reported() -> None:
    async with stand() as s, StubEngine() as good:
        await s.publish(endpoint("a", url=DEAD), good.endpoint("b"))
        for _ in range(20):
            async with s.post(max_tokens=1) as answer:
                assert answer.status == 200
        report = await s.report(lambda r: bool(r["broken"]), "the dead replica is reported")
        assert [b["replica_id"] for b in report["broken"]] == ["a"]


async def test_an_unstreamed_answer_that_breaks_half_way_is_started_again_elsewhere() -> None:
    async def breaks(c: Connection) -> None:
        await c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50)
        c.reset()

    async with stand() as s, ScriptedEngine(breaks) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        async with s.post(max_tokens=3) as answer:
            assert answer.status == 200
            assert answer.headers["X-Elasticd-Replica"] == "b"
            assert json.loads(await answer.read())["usage"]["completion_tokens"] == 3
        assert len(bad.connections) == 1


async def test_a_stream_that_breaks_inside_its_first_event_is_started_again_elsewhere() -> None:
    async def breaks(c: Connection) -> None:
        await c.head()
        await c.chunk(b'data: {"half')
        c.reset()

    async with stand() as s, ScriptedEngine(breaks) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        async with s.post(stream=True, max_tokens=3) as answer:
            body = await answer.read()
        assert b"half" not in body
        assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable", "500 Oops"])
async def test_an_engines_answer_of_any_status_but_503_passes_unchanged(status: str) -> None:
    said = {"error": {"message": "max_tokens is too large", "code": 400, "odd": "é"}}

    async def script(c: Connection) -> None:
        await c.json(
            status, said, "X-Odd: 1\r\nX-Odd: 2\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
        )

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        for _ in range(3):
            async with s.post() as answer:
                assert answer.status == int(status[:3])
                assert await answer.read() == json.dumps(said).encode()
                assert answer.headers.getall("X-Odd") == ["1", "2"]
                assert "X-Hop" not in answer.headers
        assert len(engine.connections) == 3
        assert not any(r["broken"] for r in s.controller.reports)


async def test_a_lone_replica_that_refuses_for_a_moment_loses_no_request() -> None:
    refusals = 2

    async def script(c: Connection) -> None:
        if len(engine.connections) <= refusals:
            await c.json("503 Busy", {})
        else:
            await c.json("200 OK", {"fine": True})

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}


async def test_a_request_that_loses_every_replica_is_given_up() -> None:
    """It may be the request that breaks them."""

    async def breaks(c: Connection) -> None:
        c.reset()

    async with stand(max_losses=2) as s, ScriptedEngine(breaks) as engine:
        await s.publish(engine.endpoint("a"), engine.endpoint("b"), engine.endpoint("c"))
        async with s.post() as answer:
            assert answer.status == 502
            assert error_of(await answer.read())["code"] == "replica_lost"
        assert len(engine.connections) == 2


async def test_a_request_whose_replicas_are_gone_waits_for_a_new_one() -> None:
    async with stand() as s, StubEngine(fault="rst") as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a"))

        async def replace() -> None:
            await s.report(lambda r: bool(r["broken"]), "the loss is reported")
            await s.publish(good.endpoint("b"))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replace())
            async with s.post(max_tokens=1) as answer:
                assert answer.status == 200
                assert answer.headers["X-Elasticd-Replica"] == "b"
