"""Promises about every error the gateway makes: OpenAI's shape, a type, a code, a request id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from elasticd.gateway import ApiKey
from elasticd.gateway.errors import internal, one_sentence
from elasticd.gateway.keys import hash_of
from tests.gateway.harness import (
    Connection,
    ScriptedEngine,
    Stand,
    StubEngine,
    error_of,
    eventually,
    stand,
)
from tests.gateway.raw import Answer, connected, parsed, request

TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
MALFORMED: dict[str, tuple[bytes, int, str]] = {
    "https": (TLS_HELLO + b"\r\n\r\n", 400, "invalid_request"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 400, "invalid_request"),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_request"),
    "unknown version": (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400, "invalid_request"),
    "long line": (b"GET /v1/%b HTTP/1.1\r\n\r\n" % (b"a" * 20_000), 431, "headers_too_large"),
    "long header": (HEAD + b"X-A: %b\r\n\r\n" % (b"a" * 20_000), 431, "headers_too_large"),
    "many headers": (
        HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n",
        431,
        "headers_too_large",
    ),
    "version of another kind": (
        b"GET /v1/models HTTP/2.0\r\nHost: x\r\n\r\n",
        400,
        "invalid_request",
    ),
    "version from before": (b"GET /v1/models HTTP/0.9\r\nHost: x\r\n\r\n", 400, "invalid_request"),
    "packed framing": (
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_request",
    ),
    "framing in two lines": (
        HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_request",
    ),
    "no colon": (HEAD + b"nonsense\r\n\r\n", 400, "invalid_request"),
    "nul in a header": (HEAD + b"A: b\0c\r\n\r\n", 400, "invalid_request"),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400, "invalid_request"),
    "no url": (b"GET http://[::1/health HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"),
    "length that is none": (HEAD + b"Content-Length: abc\r\n\r\n", 400, "invalid_request"),
    "two framings": (
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_request",
    ),
    "unknown framing": (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 400, "invalid_request"),
    "bad chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400, "invalid_request"),
    "unknown expectation": (
        HEAD + b"Connection: close\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n{}",
        417,
        "unsupported_expectation",
    ),
    "connect": (
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        404,
        "not_found",
    ),
    "asterisk": (
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        404,
        "not_found",
    ),
}


def checked(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req-")
    assert answer.headers["content-length"] == str(len(answer.body))
    error = error_of(answer.body)
    assert error["code"] == code
    assert error["type"]
    assert error["message"]
    return error


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_request_gets_the_same_shape(name: str) -> None:
    data, status, code = MALFORMED[name]
    async with stand() as s:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.send(data)
            assert (await client.until(b" ")) in (b"HTTP/1.0 ", b"HTTP/1.1 "), (
                "never an odd version"
            )
            rest = await client.reader.read()
            checked(parsed(b"HTTP/1.1 " + rest), status, code)


async def test_a_body_that_turns_malformed_later_is_told_at_once_and_never_passed_on() -> None:
    """What has come of it would be a request."""

    async def echo(c: Connection) -> None:
        await c.json("200 OK", {})

    async with stand() as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.send(HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
            await client.until(b"100 Continue\r\n\r\n")  # the gateway waits for the body now
            await client.send(b'e\r\n{"model": "m"}\r\n')
            await client.send(b"nonsense\r\n")
            checked(await client.answer(), 400, "invalid_request")
        assert engine.connections == []


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever() -> None:
    async with stand(body_timeout=0.1) as s:
        await s.publish()
        async with connected(s.gateway.port) as client:
            await client.send(HEAD + b"Content-Length: 100\r\n\r\n{")
            answer = await client.until(b"}}")
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"X-Request-Id: req-" in answer
            assert error_of(answer.partition(b"\r\n\r\n")[2])["code"] == "body_timeout"


async def test_keys_in_what_is_no_request_are_not_logged() -> None:
    async with stand() as s:
        async with connected(s.gateway.port) as client:
            await client.send(HEAD + b"Authorization: Bearer sk-secret\0\r\n\r\n")
            answer = await client.answer()
        await eventually(lambda: any(e["event"] == "request failed" for e in s.logs), "it is told")
        assert "sk-secret" not in repr(s.logs)
        assert b"sk-secret" not in answer.body


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
async def test_an_address_that_is_none_is_404_and_not_a_complaint_about_the_body(
    method: str,
) -> None:
    async with stand() as s:
        await s.publish()
        for path in ("/v1/nope", "/v1/", "/nope", "/v1/responses/resp_1"):
            async with s.client.request(method, s.url + path) as answer:
                assert answer.status == 404
                assert answer.headers["X-Request-Id"]
                body = await answer.read()
                assert method == "HEAD" or error_of(body)["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/health", "GET"),
    ],
)
async def test_a_wrong_method_is_405_and_says_the_right_one(
    method: str, path: str, allowed: str
) -> None:
    async with stand() as s:
        await s.publish()
        async with s.client.request(method, s.url + path) as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == allowed
            assert error_of(await answer.read())["code"] == "method_not_allowed"


async def test_head_asks_for_the_same_as_get_without_the_body() -> None:
    async with stand() as s:
        await s.publish()
        for path in ("/health", "/v1/models", "/v1/models/m"):
            async with s.client.head(s.url + path) as answer:
                assert answer.status == 200
                assert await answer.read() == b""


async def test_a_large_body_is_sent_only_after_the_gateway_has_asked_for_it() -> None:
    async def echo(c: Connection) -> None:
        await c.json("200 OK", {})

    async with stand(max_body=1000) as s, ScriptedEngine(echo) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            head, _, body = request({"model": "m"}, "Expect: 100-continue").partition(b"\r\n\r\n")
            await client.send(head + b"\r\n\r\n")
            assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body)
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert "expect" not in engine.connections[0].request.headers
        async with connected(s.gateway.port) as client:
            await client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n")
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")


async def refusal(s: Stand, stream: bool, key: str = "sk-good", **fields: Any) -> openai.APIError:
    """What the official client makes of a request that must fail."""
    async with openai.AsyncOpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0) as client:
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        with pytest.raises(openai.APIError) as caught:
            await client.chat.completions.create(**ask, stream=stream)
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_client_raises_the_typed_error_of_every_status(stream: bool) -> None:
    keys = (ApiKey("good", hash_of("sk-good")), ApiKey("none", hash_of("sk-none"), 9, 0))
    settings: Any = {"max_body": 2000, "first_byte_timeout": 0.1, "api_keys": keys}

    async def says_nothing(c: Connection) -> None:
        await c.until_client_leaves()

    async with (
        stand(**settings) as s,
        ScriptedEngine(says_nothing) as one,
        ScriptedEngine(says_nothing) as two,
    ):
        seen: list[tuple[type[openai.APIError], str, openai.APIError]] = [
            (openai.InternalServerError, "no_routing_table", await refusal(s, stream))
        ]
        await s.publish(max_wait=0.05)
        big = [{"role": "user", "content": "x" * 3000}]
        limit = {"extra_headers": {"X-Request-Timeout": "10ms"}}
        seen += [
            (openai.AuthenticationError, "invalid_api_key", await refusal(s, stream, "sk-bad")),
            (openai.NotFoundError, "model_not_found", await refusal(s, stream, model="other")),
            (openai.APIStatusError, "request_too_large", await refusal(s, stream, messages=big)),
            (openai.RateLimitError, "key_limit", await refusal(s, stream, "sk-none")),
            (openai.InternalServerError, "no_capacity", await refusal(s, stream)),
            (openai.InternalServerError, "request_timeout", await refusal(s, stream, **limit)),
        ]
        await s.publish(one.endpoint("a"), two.endpoint("b"))
        seen.append((openai.InternalServerError, "first_byte_timeout", await refusal(s, stream)))
    for kind, code, error in seen:
        assert isinstance(error, kind), error
        assert isinstance(error, openai.APIStatusError)
        assert (error.code, error.type is None) == (code, False)
        assert error.request_id


async def test_a_request_on_a_kept_connection_to_a_stopping_gateway_is_told() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        async with (
            connected(s.gateway.port) as client,
            s.post(stream=True, max_tokens=100_000) as running,
        ):
            await running.content.readuntil(b"\n\n")
            await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.until(b"}]}")).startswith(b"HTTP/1.1 200 ")
            stop = asyncio.ensure_future(s.gateway.__aexit__(None, None, None))
            await eventually(lambda: s.gateway.stopping, "it is stopping")
            await client.post({"model": "m"})
            answer = await client.answer()
            checked(answer, 503, "gateway_stopping")
            assert answer.headers["connection"] == "close"
            assert int(answer.headers["retry-after"]) > 0
        await asyncio.wait_for(stop, 10)


@pytest.mark.parametrize("own", [None, "mine-1"])
async def test_every_stream_has_a_request_id_also_when_it_ends_in_an_error(
    own: str | None,
) -> None:
    headers = {"X-Request-Id": own} if own else None
    async with stand(comment_interval=0.01) as s, StubEngine(fault="rst", fault_after=2) as engine:
        await s.publish(max_wait=0.05)
        for code in ("no_capacity", "replica_lost"):
            async with s.post(stream=True, max_tokens=5, headers=headers) as answer:
                assert answer.status == 200
                given = answer.headers["X-Request-Id"]
                assert given == own or given.startswith("req-")
                assert answer.headers["Content-Type"].startswith("text/event-stream")
                body = await answer.read()
            assert error_of(body.rsplit(b"data: ", 1)[1])["code"] == code
            await s.publish(engine.endpoint())


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("failed: 5 starts in a row", "failed: 5 starts in a row"),
        (
            "failed: OSError: /srv/models/secret/x.bin is missing. Stack: File /opt/v/a.py",
            "failed: OSError: … is missing.",
        ),
        ("failed: no such file\nTraceback (most recent call last):\n  …", "failed: no such file"),
        ("failed: " + "x" * 1000, "failed: " + "x" * 191 + "…"),
        (
            "failed: Qwen/Qwen2.5-14B needs 2.5 GiB/GPU",
            "failed: Qwen/Qwen2.5-14B needs 2.5 GiB/GPU",
        ),
        ("", ""),
    ],
)
def test_of_an_engines_last_words_clients_see_one_short_sentence_without_paths(
    state: str, shown: str
) -> None:
    assert one_sentence(state) == shown


def test_an_error_without_a_param_says_so() -> None:
    assert json.loads(internal().body())["error"]["param"] is None
