"""Promises about replicas that die: the next try is elsewhere, and how often is a fixed rule."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from elasticd.gateway.http.client_protocol import ReplicaConnection
from elasticd.gateway.http.head import Address
from elasticd.gateway.http.pool import Pool
from elasticd.routing_table import Tier
from tests.gateway.harness import (
    Connection,
    Script,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    stand,
)
from tests.traffic.tables import endpoint


@pytest.fixture
def refusing() -> Iterator[int]:
    """A port that nobody listens on and nobody can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def resets(c: Connection) -> None:
    c.reset()


async def closes(c: Connection) -> None:
    c.writer.close()


async def half_a_head(c: Connection) -> None:
    await c.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    c.reset()


async def head_only(c: Connection) -> None:
    await c.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n")


async def no_http(c: Connection) -> None:
    await c.send(b"SSH-2.0-OpenSSH_9.6\r\n")


async def fine(c: Connection) -> None:
    await c.json("200 OK", {"fine": True})


async def statuses(s: Stand, count: int, *, at_once: int = 8) -> list[int]:
    """The statuses of so many requests, some of them at the same time."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> int:
        async with gate, s.post(max_tokens=1, stream=number % 2 == 0) as answer:
            await answer.read()
            return answer.status

    return await asyncio.gather(*(one(n) for n in range(count)))


async def test_with_one_of_two_replicas_refusing_200_requests_of_200_succeed(
    refusing: int,
) -> None:
    async with stand() as s, StubEngine() as good:
        dead = endpoint("a", url=f"http://127.0.0.1:{refusing}", slots=16)
        await s.publish(dead, good.endpoint("b", slots=16))
        assert await statuses(s, 200) == [200] * 200
        tries = [e for e in s.logs if e["event"] == "replica failed before the first byte"]
        assert {e["replica"] for e in tries} == {"a"}
        assert len({e["request_id"] for e in tries}) == len(tries), "nobody met it twice"
        assert len(tries) < 50, "it is out of rotation"
        report = await s.report(lambda r: bool(r["broken"]), "the controller hears at once")
        assert report["broken"][0]["replica_id"] == "a"


async def test_the_second_try_waits_for_another_replica_rather_than_meet_the_dead_one(
    refusing: int,
) -> None:
    """The other one is full, the dead one has room."""

    async def holds(c: Connection) -> None:
        await may_end.wait()
        await fine(c)

    may_end = asyncio.Event()
    dead = endpoint("a", url=f"http://127.0.0.1:{refusing}", slots=16)
    async with stand() as s, ScriptedEngine(holds) as good:
        await s.publish(good.endpoint("b", slots=1))
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(statuses(s, 1))
            await s.report(lambda r: r["models"][0]["in_flight"] == 1, "the good one is full")
            await s.publish(dead, good.endpoint("b", slots=1))
            second = tasks.create_task(statuses(s, 1))
            await s.report(lambda r: bool(r["broken"]), "the second has met the dead one")
            await s.report(lambda r: r["models"][0]["queued"] == 1, "and waits now")
            may_end.set()
        assert first.result() + second.result() == [200, 200]
        assert sum(e["event"].startswith("replica failed") for e in s.logs) == 1


@pytest.mark.parametrize("breaks", [resets, closes, half_a_head, head_only, no_http])
async def test_a_replica_that_takes_the_body_and_breaks_costs_no_request(breaks: Script) -> None:
    async with stand() as s, ScriptedEngine(breaks) as bad, StubEngine() as good:
        await s.publish(bad.endpoint("a", slots=16), good.endpoint("b", slots=16))
        assert await statuses(s, 40) == [200] * 40
        assert 1 <= len(bad.connections) < 30


@pytest.mark.parametrize("breaks", [resets, closes, half_a_head, head_only])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_breaks_living_replicas_gets_one_more_try_and_no_third(
    breaks: Script, stream: bool
) -> None:
    async with (
        stand() as s,
        ScriptedEngine(breaks) as one,
        ScriptedEngine(breaks) as two,
        ScriptedEngine(breaks) as three,
    ):
        await s.publish(one.endpoint("a"), two.endpoint("b"), three.endpoint("c"))
        async with s.post(stream=stream) as answer:
            assert answer.status == 502
            assert error_of(await answer.read())["code"] == "replica_lost"
        assert [len(e.connections) for e in (one, two, three)] == [1, 1, 0]


async def test_replicas_that_are_gone_are_no_fault_of_the_request() -> None:
    """Machines that vanish one after the other: each takes the request with it and is no more."""

    async def vanishes(c: Connection) -> None:
        engine = next(e for e in engines if c in e.connections)
        engine.stop_listening()
        c.reset()

    async with (
        stand() as s,
        ScriptedEngine(vanishes) as one,
        ScriptedEngine(vanishes) as two,
        ScriptedEngine(fine) as last,
    ):
        engines = (one, two)
        await s.publish(*(e.endpoint(n) for e, n in zip((*engines, last), "abc", strict=True)))
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}
        assert [len(e.connections) for e in engines] == [1, 1]


async def test_replicas_that_drain_when_they_break_are_no_fault_of_the_request() -> None:
    """They still accept connections, but the controller has said that they go."""

    async def drained_then_cut(c: Connection) -> None:
        name = "a" if c in one.connections else "b"
        live = [replace(e, tier=Tier.CLOSED) if e.replica_id <= name else e for e in all_of_them]
        await s.publish(*live)
        c.reset()

    async with (
        stand() as s,
        ScriptedEngine(drained_then_cut) as one,
        ScriptedEngine(drained_then_cut) as two,
        ScriptedEngine(fine) as last,
    ):
        all_of_them = [one.endpoint("a"), two.endpoint("b"), last.endpoint("c")]
        await s.publish(*all_of_them)
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}
        assert [len(e.connections) for e in (one, two, last)] == [1, 1, 1]


async def test_nothing_is_tried_again_once_a_byte_is_with_the_client() -> None:
    async def breaks_later(c: Connection) -> None:
        await c.head()
        await c.chunk(b"data: 1\n\n")
        await first_arrived.wait()
        c.reset()

    first_arrived = asyncio.Event()
    async with stand() as s, ScriptedEngine(breaks_later) as bad, ScriptedEngine(fine) as good:
        await s.publish(bad.endpoint("a"), good.endpoint("b"))
        async with s.post(stream=True) as answer:
            assert await answer.content.readuntil(b"\n\n") == b"data: 1\n\n"
            first_arrived.set()
            rest = await answer.read()
        assert error_of(rest.removeprefix(b"data: "))["code"] == "replica_lost"
        assert good.connections == []


async def test_a_dead_replica_that_comes_back_serves_again() -> None:
    async with stand() as s, StubEngine() as only:
        await s.publish(only.endpoint("a"))
        await only.replica.down()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(statuses(s, 1))
            await s.report(lambda r: bool(r["broken"]), "the loss is reported")
            await only.replica.listen()
        assert waiting.result() == [200]


async def test_our_own_lack_of_sockets_is_no_replicas_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Pool._connect
    none_left = True

    async def sometimes(pool: Pool, address: Address) -> ReplicaConnection:
        if none_left:
            raise OSError(errno.EMFILE, "Too many open files")
        return await real(pool, address)

    monkeypatch.setattr(Pool, "_connect", sometimes)
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        async with s.post() as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"]
            assert error_of(await answer.read())["code"] == "gateway_overloaded"
        none_left = False
        assert await statuses(s, 1) == [200], "the replica was not set aside"
        assert not any(r["broken"] for r in s.controller.reports)


async def test_replicas_that_only_accept_connections_are_gone() -> None:
    """A killed process may do so for a moment. Two such losses, one after the other, are no proof
    against a request."""
    async with (
        stand() as s,
        ScriptedEngine(closes) as a,
        ScriptedEngine(closes) as b,
        ScriptedEngine(fine) as c,
    ):
        a.deaf = b.deaf = True
        await s.publish(a.endpoint("a"), b.endpoint("b"), c.endpoint("c"))
        async with s.post() as answer:
            assert await answer.json() == {"fine": True}
        assert [len(engine.connections) for engine in (a, b, c)] == [1, 1, 1]


async def test_a_replica_that_breaks_off_and_still_answers_costs_the_request_one_of_two_tries() -> (
    None
):
    async with (
        stand() as s,
        ScriptedEngine(closes) as a,
        ScriptedEngine(closes) as b,
        ScriptedEngine(fine) as c,
    ):
        await s.publish(a.endpoint("a"), b.endpoint("b"), c.endpoint("c"))
        async with s.post() as answer:
            assert error_of(await answer.read())["code"] == "replica_lost"
        assert [len(engine.connections) for engine in (a, b, c)] == [1, 1, 0]
