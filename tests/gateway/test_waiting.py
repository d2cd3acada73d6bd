"""Promises of the queue: held while capacity comes, told clearly when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elasticd.gateway import Gateway
from elasticd.gateway.desk import Desk
from elasticd.gateway.errors import ApiError
from elasticd.gateway.table_store import save_table
from elasticd.traffic.admission import Admission
from elasticd.traffic.tickets import Ask
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    eventually,
    stand,
)
from tests.traffic.tables import route, table


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


async def test_an_unknown_model_wakes_nobody() -> None:
    """Not even a report is sent because of it, let alone demand."""
    pokes = 0

    def poke() -> None:
        nonlocal pokes
        pokes += 1

    admission = Admission()
    desk = Desk(admission, lambda: 0.0, poke)
    for known in (None, table(route())):
        if known is not None:
            desk.apply(known)
        with desk.claim(Ask("other")) as claim, pytest.raises(ApiError):
            await claim.lease()
    assert pokes == 0
    with desk.claim(Ask("m")):
        assert pokes == 1
    desk.close()


async def test_demand_for_an_unknown_model_is_never_reported() -> None:
    async with stand() as s:
        await s.publish()
        for _ in range(3):
            async with s.post(model="other") as answer:
                assert answer.status == 404
                assert error_of(await answer.read())["code"] == "model_not_found"
        async with asyncio.TaskGroup() as tasks:
            known = tasks.create_task(answered(s))
            await s.report(lambda r: r["models"][0]["queued"] == 1, "the known one is reported")
            known.cancel()
        assert {m["model"] for r in s.controller.reports for m in r["models"]} == {"m"}
        assert max(m["arrivals"] for r in s.controller.reports for m in r["models"]) == 1


async def test_a_restarted_gateway_at_zero_replicas_knows_its_models_and_wakes_them() -> None:
    """From its table on disk, before the controller has said a word."""
    async with stand(controller=False) as s:
        save_table(s.config.table_file, table(route(max_wait=60.0)))
        async with Gateway(s.config) as restarted:
            url = f"http://127.0.0.1:{restarted.port}/v1"
            async with s.client.get(f"{url}/models") as answer:
                assert [m["id"] for m in (await answer.json())["data"]] == ["m"]
            async with s.client.post(f"{url}/completions", json={"model": "other"}) as answer:
                assert answer.status == 404
            asked = s.client.post(f"{url}/completions", json={"model": "m", "max_tokens": 1})
            request = asyncio.ensure_future(asked.__aenter__())
            await s.controller.start()
            report = await s.report(lambda r: r["models"][0]["queued"] == 1, "the scaler hears")
            assert [m["model"] for m in report["models"]] == ["m"]
            assert not request.done(), "it is held"
            async with StubEngine() as engine:
                s.controller.publish(table(route(engine.endpoint()), version=2))
                assert (await request).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_model_is_503_at_once_with_the_reason_in_one_sentence(stream: bool) -> None:
    state = "failed: 5 starts in a row: OSError: /srv/m/x.bin missing. See /var/log/y\nTraceback"
    async with stand() as s:
        await s.publish(max_wait=0.0, state=state)
        status, headers, body = await answered(s, stream=stream)
        assert status == 503
        assert int(headers["Retry-After"]) > 5, "somebody has to mend it first"
        error = error_of(body)
        assert error["code"] == "model_failed"
        assert error["message"].startswith("`m` cannot be served: failed: 5 starts in a row")
        assert "/srv" not in error["message"]
        assert "Traceback" not in error["message"]


async def test_a_stream_that_waits_when_its_model_fails_is_told_in_an_event() -> None:
    async with stand(comment_interval=0.01) as s:
        await s.publish(max_wait=300.0)
        async with s.post(stream=True) as answer:
            await answer.content.readuntil(b"\n\n")
            await s.publish(max_wait=0.0, state="failed: no such model")
            body = await answer.read()
        error = error_of(body.rsplit(b"data: ", 1)[1])
        assert error["code"] == "model_failed"
        assert "no such model" in error["message"]


async def test_a_failed_model_whose_old_replica_still_serves_is_served() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint(), max_wait=0.0, state="failed: the new version")
        assert (await answered(s, max_tokens=1))[0] == 200


async def test_one_slot_and_twenty_requests_are_all_counted_and_the_late_replica_helps() -> None:
    """The measured load is never above what one replica may have; the queue is what tells."""
    may_end = asyncio.Event()

    async def holds(c: Connection) -> None:
        await may_end.wait()
        await c.json("200 OK", {})

    async with stand() as s, ScriptedEngine(holds) as first, ScriptedEngine(holds) as late:
        await s.publish(first.endpoint("a", slots=1))
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(answered(s)) for _ in range(20)]
            report = await s.report(lambda r: r["models"][0]["queued"] == 19, "the queue counts")
            assert report["models"][0]["in_flight"] == 1
            assert report["models"][0]["peak"] == 20
            await s.publish(first.endpoint("a", slots=1), late.endpoint("b", slots=1))
            await eventually(lambda: late.connections, "who waited goes to the new replica")
            may_end.set()
        assert [r.result()[0] for r in requests] == [200] * 20


async def test_what_is_in_flight_is_reported_as_long_as_it_runs() -> None:
    """Whatever engines say of themselves or do not: the gateway's own counts are never zero."""
    may_end = asyncio.Event()

    async def holds(c: Connection) -> None:
        await may_end.wait()
        await c.json("200 OK", {})

    async with stand() as s, ScriptedEngine(holds) as engine:
        await s.publish(engine.endpoint(slots=50))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task(answered(s))
            await s.report(lambda r: r["models"][0]["in_flight"] == 50, "all of them run")
            seen = len(s.controller.reports)
            await s.report(lambda r: len(s.controller.reports) >= seen + 3, "time passes")
            for report in s.controller.reports[seen:]:
                assert report["models"][0]["in_flight"] == 50
                assert report["loads"] == [{"replica_id": "r1", "in_flight": 50}]
            may_end.set()


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
