"""Promises of the front door: OpenAI shapes, ids, limits, what passes and what does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import aiohttp
import openai
import pytest
from yarl import URL

from elasticd.errors import UsageError
from elasticd.gateway import GatewayConfig
from elasticd.gateway.dispatcher import Dispatcher
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


async def echo(c: Connection) -> None:
    await c.json("200 OK", {"ok": True})


async def refused(s: Stand, status: int, code: str, **how: object) -> dict[str, object]:
    async with s.client.request(how.pop("method", "POST"), s.url + how.pop("path"), **how) as a:
        assert a.status == status
        assert a.headers["X-Request-Id"]
        assert a.headers["Content-Type"] == "application/json"
        error = error_of(await a.read())
    assert error["code"] == code
    return error


async def test_models_are_listed_also_without_replicas() -> None:
    async with stand() as s:
        await s.publish()
        async with s.client.get(s.url + "/v1/models") as answer:
            listed = await answer.json()
        assert listed["object"] == "list"
        assert [m["id"] for m in listed["data"]] == ["m"]
        async with s.client.get(s.url + "/v1/models/m") as answer:
            assert (await answer.json()) == listed["data"][0]
        await refused(s, 404, "model_not_found", method="GET", path="/v1/models/other")


async def test_an_unknown_model_is_404_in_openai_shape() -> None:
    async with stand() as s:
        await s.publish()
        error = await refused(
            s, 404, "model_not_found", path="/v1/completions", json={"model": "x"}
        )
        assert error["type"] == "invalid_request_error"
        assert "`x`" in str(error["message"])


async def test_what_cannot_be_routed_is_400_and_says_why() -> None:
    async with stand() as s:
        await s.publish()
        path = "/v1/chat/completions"
        for bad in ({"data": b"{"}, {"json": []}, {"json": {}}, {"json": {"model": 5}}, {}):
            await refused(s, 400, "invalid_request", path=path, **bad)
        for header in ({"X-Priority": "10"}, {"X-Request-Timeout": "soon"}):
            await refused(s, 400, "invalid_request", path=path, json={"model": "m"}, headers=header)
        await refused(s, 404, "not_found", path="/metrics", method="GET")
        await refused(s, 405, "method_not_allowed", path="/v1/models")


async def test_a_body_above_the_limit_is_413() -> None:
    async with stand(max_body=1000) as s:
        await s.publish()
        await refused(s, 413, "request_too_large", path="/v1/completions", data=b"x" * 2000)


async def test_before_the_first_table_everything_is_503_with_a_clear_text() -> None:
    async with stand(controller=False) as s:
        for how in (
            {"path": "/v1/chat/completions", "json": {"model": "m"}},
            {"path": "/v1/models", "method": "GET"},
        ):
            error = await refused(s, 503, "no_routing_table", **how)
            assert "controller" in str(error["message"])
        async with s.client.get(s.url + "/health") as answer:
            assert answer.status == 503


async def test_health_is_fine_once_there_is_a_table() -> None:
    async with stand() as s:
        await s.publish()
        async with s.client.get(s.url + "/health") as answer:
            assert (answer.status, await answer.json()) == (
                200,
                {"status": "ok", "epoch": 1, "version": 1},
            )


async def test_the_engine_gets_the_request_as_it_was_but_with_its_own_key() -> None:
    body = b'{"model": "m",  "unknown_field": {"a": [1, 2]}, "text": "\xc3\xa9"}'
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint(key="engine-key"))
        headers = {
            "Authorization": "Bearer clients-own",
            "X-Custom": "kept",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "dropped",
            "Content-Type": "application/json",
            "User-Agent": "me",
        }
        url = URL(s.url + "/v1/rerank?a=%2F", encoded=True)
        async with s.client.post(url, data=body, headers=headers) as answer:
            assert answer.status == 200
        (received,) = (c.request for c in engine.connections)
        assert (received.method, received.target) == ("POST", "/v1/rerank?a=%2F")
        assert received.body == body
        assert received.headers["authorization"] == "Bearer engine-key"
        assert received.headers["x-custom"] == "kept"
        assert received.headers["user-agent"] == "me"
        assert received.headers["host"] == f"127.0.0.1:{engine.port}"
        assert "x-hop" not in received.headers


async def test_a_clients_request_id_comes_back_and_is_unique_for_the_engine() -> None:
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        for _ in range(2):
            async with s.post(headers={"X-Request-Id": "mine-1"}) as answer:
                assert answer.headers["X-Request-Id"] == "mine-1"
        async with s.post(headers={"X-Request-Id": "not \t sane"}) as answer:
            assert answer.headers["X-Request-Id"].startswith("req-")
        seen = [c.request.headers["x-request-id"] for c in engine.connections]
        assert len(set(seen)) == 3
        assert all(i.startswith("mine-1-") for i in seen[:2])


async def test_a_form_with_a_model_field_is_routed_by_it() -> None:
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        form = aiohttp.FormData()
        form.add_field("file", b"\r\n--noise name=model\r\n", filename="a.wav")
        form.add_field("model", "m")
        async with s.client.post(s.url + "/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200
        (received,) = (c.request for c in engine.connections)
        assert b"--noise name=model" in received.body
        assert received.headers["content-type"].startswith("multipart/form-data; boundary=")
        form = aiohttp.FormData()
        form.add_field("file", b"x", filename="a.wav")
        await refused(s, 400, "invalid_request", path="/v1/audio/transcriptions", data=form)


async def test_a_compressed_request_reaches_the_engine_plain() -> None:
    body = b'{"model": "m"}'
    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        url = s.url + "/v1/completions"
        async with s.client.post(url, data=gzip.compress(body), headers=headers) as answer:
            assert answer.status == 200
        (received,) = (c.request for c in engine.connections)
        assert received.body == body
        assert "content-encoding" not in received.headers


async def test_a_body_that_cannot_be_unpacked_is_400() -> None:
    async with stand() as s:
        await s.publish()
        headers = {"Content-Encoding": "gzip"}
        path = "/v1/completions"
        await refused(s, 400, "invalid_request", path=path, data=b"no gzip", headers=headers)


async def test_a_fault_of_our_own_is_told_in_the_same_shape_and_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Dispatcher, "answer", None)
    async with stand() as s:
        await s.publish()
        await refused(s, 500, "internal_error", path="/v1/completions", json={"model": "m"})
        assert any(e["event"] == "request met a fault" for e in s.logs)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b'{"ok": true}')

    async def script(c: Connection) -> None:
        assert c.request.headers["accept-encoding"] == "gzip"
        await c.send(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
            % (len(packed), packed)
        )

    async with (
        stand() as s,
        ScriptedEngine(script) as engine,
        aiohttp.ClientSession(auto_decompress=False) as raw,
    ):
        await s.publish(engine.endpoint())
        url, headers = s.url + "/v1/completions", {"Accept-Encoding": "gzip"}
        async with raw.post(url, json={"model": "m"}, headers=headers) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert await answer.read() == packed


async def test_the_official_client_works() -> None:
    async with stand() as s, StubEngine(model="m") as engine:
        await s.publish(engine.endpoint())
        async with openai.AsyncOpenAI(
            base_url=s.url + "/v1", api_key="any", max_retries=0
        ) as client:
            assert [m.id async for m in client.models.list()] == ["m"]
            ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
            whole = await client.chat.completions.create(**ask)
            stream = await client.chat.completions.create(**ask, stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream])
            assert text == whole.choices[0].message.content
            completion = await client.completions.create(model="m", prompt="hi", max_tokens=2)
            assert completion.usage is not None
            assert completion.usage.completion_tokens == 2


async def test_the_official_client_raises_its_typed_errors() -> None:
    messages = [{"role": "user", "content": "hi"}]
    async with (
        stand() as s,
        StubEngine(model="m") as engine,
        openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="any", max_retries=0) as client,
    ):
        await s.publish(max_wait=0.05)
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="other", messages=messages)
        assert missing.value.code == "model_not_found"
        assert missing.value.request_id
        with pytest.raises(openai.InternalServerError) as waited:
            await client.chat.completions.create(model="m", messages=messages)
        assert waited.value.status_code == 503
        await s.publish(queue_limit=0)
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="m", messages=messages)
        engine.set(fault="rst", fault_after=3, itl_ms=2)
        await s.publish(engine.endpoint())
        stream = await client.chat.completions.create(
            model="m", messages=messages, stream=True, max_tokens=50
        )
        with pytest.raises(openai.APIError) as lost:
            [chunk async for chunk in stream]
        assert lost.value.code == "replica_lost"


async def test_an_answer_of_the_engine_keeps_every_byte() -> None:
    odd = '{"a":1,   "b":"\\u00e9é",\n"c":null}'.encode()

    async def script(c: Connection) -> None:
        await c.head("application/json")
        for byte in odd:
            await c.chunk(bytes((byte,)))
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post("/v1/embeddings") as answer:
            assert await answer.read() == odd
            assert json.loads(odd)["b"] == "éé"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu1.lab"])
def test_without_api_keys_it_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(UsageError, match=r"gateway\.listen"):
        GatewayConfig(admin_socket=Path("a"), state_dir=Path("b"), host=host)


async def test_an_empty_table_knows_no_model() -> None:
    async with stand() as s:
        s.controller.publish(table(version=7))
        await eventually(lambda: s.controller.followed == (1, 7), "the gateway took the table")
        await refused(s, 404, "model_not_found", path="/v1/completions", json={"model": "m"})
