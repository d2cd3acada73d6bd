"""Promises of the queue: held while capacity comes, told clearly when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    eventually,
    stand,
)
from tests.traffic.tables import table


async def answered(s: Stand, **fields: Any) -> tuple[int, dict[str, str], bytes]:
    async with s.post(**fields) as answer:
        return answer.status, dict(answer.headers), await answer.read()


async def test_at_zero_replicas_a_request_wakes_the_scaler_and_is_held_until_one_comes() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish()
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(answered(s, max_tokens=1))
            report = await s.report(lambda r: r["models"][0]["queued"] == 1, "the scaler hears")
            assert report["models"] == [
                {"model": "m", "queued": 1, "in_flight": 0, "peak": 1, "arrivals": 1}
            ]
            assert not request.done()
            await s.publish(engine.endpoint())
        assert request.result()[0] == 200


async def test_after_max_wait_the_answer_is_503_with_the_state_of_the_model() -> None:
    async with stand() as s:
        await s.publish(max_wait=0.1)
        status, headers, body = await answered(s)
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        error = error_of(body)
        assert error["code"] == "no_capacity"
        assert "starting 1 replica" in error["message"]


async def test_without_max_wait_the_answer_is_503_at_once_also_for_who_waited_before() -> None:
    async with stand() as s:
        await s.publish(max_wait=300.0)
        waiting = asyncio.create_task(answered(s))
        await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
        await s.publish(max_wait=0.0)
        assert (await waiting)[0] == 503
        assert (await answered(s))[0] == 503


async def test_a_waiting_stream_gets_comments_and_then_its_answer() -> None:
    async with stand(comment_interval=0.05) as s, StubEngine() as engine:
        await s.publish()
        async with s.post(stream=True, max_tokens=2) as answer:
            assert answer.status == 200
            assert await answer.content.readuntil(b"\n\n") == b": waiting for a replica\n\n"
            await s.publish(engine.endpoint())
            body = await answer.read()
        assert body.endswith(b"data: [DONE]\n\n")
        assert b"error" not in body


async def test_after_comments_an_error_is_an_event() -> None:
    async with stand(comment_interval=0.05) as s:
        await s.publish(max_wait=0.2)
        status, _, body = await answered(s, stream=True)
        assert status == 200
        comments, event = body.rsplit(b"data: ", 1)
        assert set(comments.split(b"\n\n")) == {b": waiting for a replica", b""}
        assert error_of(event)["code"] == "no_capacity"


async def test_after_comments_an_engines_refusal_is_an_event() -> None:
    async def script(c: Connection) -> None:
        await commented.wait()
        await c.json("400 Bad Request", {"error": {"message": "no"}})

    commented = asyncio.Event()
    async with stand(comment_interval=0.05) as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            await answer.content.readuntil(b"\n\n")
            commented.set()
            body = await answer.read()
        assert body.endswith(b'data: {"error": {"message": "no"}}\n\n')


async def test_requests_above_the_slots_wait_and_are_all_served() -> None:
    async with stand() as s, StubEngine(itl_ms=1) as engine:
        await s.publish(engine.endpoint(slots=2))
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(engine.replica.running))
                await asyncio.sleep(0)

        watcher = asyncio.ensure_future(watch())
        results = await asyncio.gather(*(answered(s, max_tokens=3) for _ in range(20)))
        watcher.cancel()
        assert [status for status, _, _ in results] == [200] * 20
        assert 1 <= most <= 2


async def test_a_full_queue_answers_429() -> None:
    async with stand() as s:
        await s.publish(queue_limit=1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(answered(s))
            await s.report(lambda r: r["models"][0]["queued"] == 1, "one waits")
            status, headers, body = await answered(s)
            assert status == 429
            assert int(headers["Retry-After"]) > 0
            assert error_of(body)["code"] == "queue_full"
            waiting.cancel()


async def test_a_higher_priority_goes_first() -> None:
    order: list[str] = []

    async def script(c: Connection) -> None:
        order.append(c.request.headers.get("x-priority", "-"))
        await first_may_end.wait()
        await c.json("200 OK", {})

    first_may_end = asyncio.Event()
    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint(slots=1))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(answered(s))
            await eventually(lambda: order, "the first one runs")
            for count, priority in ((1, "1"), (2, "9"), (3, "6")):
                tasks.create_task(answered(s, headers={"X-Priority": priority}))
                await s.report(
                    lambda r, n=count: r["models"][0]["queued"] == n, f"{count} of them wait"
                )
            first_may_end.set()
        assert order == ["-", "9", "6", "1"]


async def test_a_client_that_gives_up_waiting_leaves_the_queue() -> None:
    async with stand() as s:
        await s.publish()
        request = asyncio.ensure_future(answered(s))
        await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
        request.cancel()
        seen = len(s.controller.reports)
        await eventually(
            lambda: any(r["models"][0]["queued"] == 0 for r in s.controller.reports[seen:]),
            "it waits no longer",
        )


async def test_the_clients_own_limit_ends_the_waiting() -> None:
    async with stand() as s:
        await s.publish()
        status, _, body = await answered(s, headers={"X-Request-Timeout": "0.1"})
        assert status == 504
        assert error_of(body)["code"] == "request_timeout"


async def test_a_model_that_is_taken_away_turns_its_queue_away() -> None:
    async with stand() as s:
        await s.publish()
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(answered(s))
            await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
            s.controller.publish(table(version=99))
        assert request.result()[0] == 404
