"""What strangers may send to the agent without harm: each gets a 4xx and one message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import RunningAgent, running_agent


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[RunningAgent]:
    async with running_agent(tmp_path, FakeCluster()) as running:
        yield running


async def _send(
    agent: RunningAgent, start: bytes, headers: bytes = b"", body: bytes = b""
) -> tuple[int, dict[str, Any]]:
    """Sends bytes no client library would; returns status and JSON of the answer."""
    where = urlsplit(agent.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(
            start + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b%b\r\n" % (length, headers)
        )
        writer.write(body)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(rest)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", 5),
        ("token", None),
        ("token", "\ud800"),
        ("node_id", 5),
        ("node_id", ["n-9"]),
        ("node_id", {}),
        ("node_id", "\udfff"),
        ("nonce", 5),
        ("nonce", "\ud800"),
    ],
)
async def test_a_join_with_a_field_that_is_no_text_is_400_and_spends_no_token(
    agent: RunningAgent, name: str, value: object
) -> None:
    await agent.until_complete()
    # The token of what the field would be as text: its type alone must refuse it.
    node_id = "n-9" if name != "node_id" or isinstance(value, str) else str(value)
    good = {"node_id": "n-9", "token": agent.secret.join_token(node_id), "nonce": "mine"}
    body = json.dumps({**good, name: value}).encode()
    status, answer = await _send(agent, b"POST /v1/nodes/join", body=body)
    assert (status, answer) == (400, {"error": f"not a join request: `{name}` is not text"})
    good["token"] = agent.secret.join_token("n-9")
    status, _ = await _send(agent, b"POST /v1/nodes/join", body=json.dumps(good).encode())
    assert status == 200


@pytest.mark.parametrize("shown", [b"\xff\xfe", "ключ".encode(), b"\xed\xa0\x80"])
async def test_an_authorization_that_is_not_ascii_is_401(agent: RunningAgent, shown: bytes) -> None:
    for start in (b"GET /v1/state", b"POST /v1/nodes/n-9/report"):
        status, answer = await _send(agent, start, b"Authorization: Bearer %b\r\n" % shown)
        assert (status, answer) == (401, {"error": "wrong or missing token"})


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"", b"[" * 200_000),
        (b"", b"9" * 10_000),
        (b"", b"\xff"),
        (b"Content-Type: application/json; charset=none-such\r\n", b"{}"),
    ],
    ids=["deep", "long number", "not UTF-8", "unknown charset"],
)
async def test_a_body_that_cannot_be_read_is_400(
    agent: RunningAgent, headers: bytes, body: bytes
) -> None:
    status, answer = await _send(agent, b"POST /v1/nodes/join", headers, body)
    assert (status, answer) == (400, {"error": "the body is not JSON"})
