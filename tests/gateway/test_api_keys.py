"""Promises about API keys: who gets in, how far, and what never gets out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import UsageError
from elasticd.gateway import ApiKey, GatewayConfig
from elasticd.gateway.keys import Caller, KeyRing, hash_of
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    eventually,
    stand,
)
from tests.gateway.raw import connected

A, B = "sk-elasticd-a", "sk-elasticd-b"
KEYS = (
    ApiKey("team-a", hash_of(A), max_priority=5, max_ongoing_requests=2),
    ApiKey("team-b", hash_of(B), max_priority=9),
)


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **more}


async def status_of(s: Stand, key: str, **fields: Any) -> int:
    async with s.post(headers=bearer(key), **fields) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_api_key"),
        ("", "missing_api_key"),
        ("Bearer", "missing_api_key"),
        ("Bearer ", "missing_api_key"),
        (f"Basic {A}", "missing_api_key"),
        (A, "missing_api_key"),
        ("Bearer wrong", "invalid_api_key"),
        (f"Bearer {A}x", "invalid_api_key"),
        (f"Bearer {hash_of(A)}", "invalid_api_key"),
        (f"Bearer sha256:{hash_of(A)}", "invalid_api_key"),
        ("Bearer ключ", "invalid_api_key"),
    ],
)
async def test_who_shows_no_known_key_is_401_and_reaches_nothing(
    header: str | None, code: str
) -> None:
    async with stand(api_keys=KEYS) as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        headers = {} if header is None else {"Authorization": header}
        for method, path in (
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/m"),
            ("GET", "/v1/nope"),
            ("GET", "/nope"),
        ):
            async with s.client.request(method, s.url + path, headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
                assert answer.headers["X-Request-Id"]
                assert error_of(await answer.read())["code"] == code
        assert engine.counts["requests"] == 0
        assert not any(m["arrivals"] for r in s.controller.reports for m in r["models"])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_known_key_gets_in(scheme: str) -> None:
    async with stand(api_keys=KEYS) as s, StubEngine() as engine:
        await s.publish(engine.endpoint())
        async with s.post(max_tokens=1, headers={"Authorization": f"{scheme} {B}"}) as answer:
            assert answer.status == 200
        async with s.client.get(s.url + "/v1/models", headers=bearer(A)) as answer:
            assert answer.status == 200


async def test_health_needs_no_key() -> None:
    async with stand(api_keys=KEYS) as s:
        await s.publish()
        async with s.client.get(s.url + "/health") as answer:
            assert answer.status == 200


async def test_a_clients_key_reaches_neither_engine_nor_log() -> None:
    async def echo(c: Connection) -> None:
        await c.json("200 OK", {})

    async with stand(api_keys=KEYS) as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint(key=""))
        assert await status_of(s, A) == 200
        assert await status_of(s, "sk-wrong") == 401
        (received,) = (c.request for c in engine.connections)
        assert "authorization" not in received.headers
        assert A not in repr(received)
        assert A not in repr(s.logs)
        assert "sk-wrong" not in repr(s.logs)


async def test_a_body_is_not_read_from_a_stranger() -> None:
    """It would be told 413 else, or be waited for."""
    async with stand(api_keys=KEYS, max_body=10) as s, connected(s.gateway.port) as client:
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        )
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")


async def test_priority_is_capped_by_the_key() -> None:
    """The capped one waits behind a 6 of somebody else, the uncapped one does not."""
    order: list[str] = []

    async def script(c: Connection) -> None:
        order.append(c.request.headers.get("x-who", "-"))
        await may_end.wait()
        await c.json("200 OK", {})

    may_end = asyncio.Event()
    async with stand(api_keys=KEYS) as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint(slots=1))

        async def ask(key: str, who: str, priority: str) -> None:
            headers = bearer(key, **{"X-Priority": priority, "X-Who": who})
            async with s.post(headers=headers) as answer:
                assert answer.status == 200

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(B, "first", "5"))
            await eventually(lambda: order, "the first one runs")
            waiting = [(A, "a wants 9", "9"), (B, "b has 6", "6"), (B, "b has 9", "9")]
            for count, (key, who, priority) in enumerate(waiting, 1):
                tasks.create_task(ask(key, who, priority))
                await s.report(lambda r, n=count: r["models"][0]["queued"] == n, f"{who} waits")
            may_end.set()
        assert order == ["first", "b has 9", "b has 6", "a wants 9"]


async def test_a_key_has_only_so_many_requests_under_way_waiting_ones_included() -> None:
    async def holds(c: Connection) -> None:
        await may_end.wait()
        await c.json("200 OK", {})

    may_end = asyncio.Event()
    async with stand(api_keys=KEYS) as s, ScriptedEngine(holds) as engine:
        await s.publish(engine.endpoint(slots=1))
        async with asyncio.TaskGroup() as tasks:
            held = [tasks.create_task(status_of(s, A)) for _ in range(2)]
            await s.report(
                lambda r: (r["models"][0]["in_flight"], r["models"][0]["queued"]) == (1, 1),
                "one runs, one waits",
            )
            async with s.post(headers=bearer(A)) as answer:
                assert answer.status == 429
                assert int(answer.headers["Retry-After"]) > 0
                error = error_of(await answer.read())
            assert (error["code"], error["type"]) == ("key_limit", "rate_limit_error")
            assert "'team-a'" in error["message"]
            other = tasks.create_task(status_of(s, B))
            await s.report(lambda r: r["models"][0]["queued"] == 2, "another key is not affected")
            may_end.set()
        assert [t.result() for t in (*held, other)] == [200, 200, 200]
        assert await status_of(s, A) == 200, "what has ended counts no more"


async def test_a_client_that_leaves_gives_its_keys_place_back() -> None:
    async with stand(api_keys=KEYS) as s, StubEngine() as engine:
        await s.publish()
        waiting = [asyncio.ensure_future(status_of(s, A)) for _ in range(2)]
        await s.report(lambda r: r["models"][0]["queued"] == 2, "both wait")
        for request in waiting:
            request.cancel()
        await eventually(
            lambda: sum(e["event"] == "client disconnected" for e in s.logs) == 2, "both left"
        )
        await s.publish(engine.endpoint())
        assert await status_of(s, A, max_tokens=1) == 200


async def test_a_key_that_floods_the_queue_does_not_shut_others_out() -> None:
    order: list[str] = []

    async def script(c: Connection) -> None:
        order.append(c.request.headers["x-who"])
        if len(order) == 1:
            await may_end.wait()
        await c.json("200 OK", {})

    may_end = asyncio.Event()
    keys = (ApiKey("loud", hash_of(A)), ApiKey("quiet", hash_of(B)))
    async with stand(api_keys=keys) as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint(slots=2), queue_limit=100)

        async def ask(key: str, who: str) -> None:
            async with s.post(headers=bearer(key, **{"X-Who": who})) as answer:
                assert answer.status == 200

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(A, "loud"))
            await eventually(lambda: order, "one of the loud one runs, and holds its slot")
            await s.publish(engine.endpoint(slots=1), queue_limit=100)
            for _ in range(20):
                tasks.create_task(ask(A, "loud"))
            await s.report(lambda r: r["models"][0]["queued"] == 20, "they wait")
            tasks.create_task(ask(B, "quiet"))
            await s.report(lambda r: r["models"][0]["queued"] == 21, "the quiet one came last")
            await s.publish(engine.endpoint(slots=2), queue_limit=100)
            await eventually(lambda: len(order) >= 2, "a second slot is free")
            may_end.set()
        assert order[:2] == ["loud", "quiet"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu1.lab"])
def test_with_keys_it_may_be_reachable_from_outside(host: str) -> None:
    assert GatewayConfig(Path("a"), Path("b"), host=host, api_keys=KEYS).host == host


@pytest.mark.parametrize("bad", ["", "sha256:" + "0" * 64, "0" * 63, "G" * 64, A])
def test_a_hash_that_is_none_is_refused_and_says_what_makes_one(bad: str) -> None:
    with pytest.raises(UsageError, match="keygen"):
        ApiKey("team-a", bad)


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="team-a"):
        GatewayConfig(Path("a"), Path("b"), api_keys=(KEYS[0], KEYS[0]))


def test_every_hash_is_compared_also_after_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes must not tell which key it was, or how much of it was right."""
    compared: list[str] = []

    def watching(known: str, shown: str) -> bool:
        compared.append(known)
        return known == shown

    monkeypatch.setattr("elasticd.gateway.keys.hmac.compare_digest", watching)
    assert KeyRing(KEYS).caller(f"Bearer {A}") == Caller("team-a", 5, 2)
    assert compared == [key.sha256_hex for key in KEYS]
