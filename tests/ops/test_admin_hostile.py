"""The admin API towards clients that write what no client library writes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from elasticd.core.events import DownRequested, ScaleHeld
from elasticd.ops.admin import full_app
from elasticd.ops.admin_site import serve_unix
from tests.cli.real_admin import Controller
from tests.gateway.raw import Answer, RawClient, parsed

HEAD = b"POST /api/v1/models/tiny/scale HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
YEAR = 365 * 86_400


@pytest.fixture
def controller() -> Controller:
    nodes = [{"id": "n-1", "phase": "ready"}]
    return Controller({"nodes": nodes, "models": [{"name": "tiny"}], "down": None})


@pytest.fixture
async def path(controller: Controller, tmp_path: Path) -> AsyncIterator[Path]:
    async with serve_unix(full_app(controller.ports), tmp_path / "admin.sock"):
        yield tmp_path / "admin.sock"


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Any:
    """Whatever a client sends, it is not worth a word in the log."""
    with caplog.at_level(logging.INFO), structlog.testing.capture_logs() as logs:
        yield logs
    assert [r.message for r in caplog.records if "aiohttp" in r.name or "asyncio" in r.name] == []
    assert [e for e in logs if e["log_level"] != "debug"] == []


async def client(path: Path) -> RawClient:
    return RawClient(*await asyncio.open_unix_connection(path))


async def told(path: Path, data: bytes) -> tuple[Answer, str]:
    raw = await client(path)
    await raw.send(data)
    async with asyncio.timeout(10):
        answer = parsed(await raw.reader.read())
    raw.writer.close()
    assert answer.headers["content-type"].startswith("application/json")
    return answer, json.loads(answer.body)["error"]


async def get(path: Path, target: str) -> tuple[int, str]:
    answer, error = await told(
        path, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    return answer.status, error


async def post(path: Path, url: str, body: bytes) -> Answer:
    raw = await client(path)
    head = f"POST {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}"
    await raw.send(head.encode() + b"\r\n\r\n" + body)
    answer = await raw.answer()
    raw.writer.close()
    return answer


@pytest.mark.parametrize("name", ["since_seq", "since", "limit", "wait"])
@pytest.mark.parametrize("text", ["99999999999999999999999", "1_0", "%D9%A3", "nan", "1e400", "x"])
async def test_a_number_that_nothing_can_count_is_refused(path: Path, name: str, text: str) -> None:
    status, error = await get(path, f"/api/v1/events?{name}={text}")
    assert status == 400
    assert error.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"garbage\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
    ],
)
async def test_what_is_no_request_is_told_in_json(path: Path, data: bytes, status: int) -> None:
    answer, error = await told(path, data)
    assert answer.status == status
    assert error


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_no_trace(
    controller: Controller, path: Path
) -> None:
    for leave in ("reset", "close"):
        raw = await client(path)
        await raw.send(HEAD + b"Content-Length: 50\r\n\r\n{")
        if leave == "reset":
            raw.writer.transport.abort()
        else:
            raw.writer.close()
            await raw.writer.wait_closed()
    assert (await get(path, "/nope"))[0] == 404  # its own request comes after theirs
    assert controller.emitted == []


@pytest.mark.parametrize("seconds", ["31536001", "1e15", "1e999", "99999999999999999999999"])
@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/api/v1/models/tiny/scale", "seconds"),
        ("/api/v1/nodes/n-1/drain", "seconds"),
        ("/api/v1/nodes/n-1/preempt", "notice"),
    ],
)
async def test_a_time_beyond_a_year_is_refused_and_says_so(
    controller: Controller, path: Path, url: str, name: str, seconds: str
) -> None:
    answer = await post(path, url, f'{{"replicas": 1, "{name}": {seconds}}}'.encode())
    assert answer.status == 400
    told_so = f"{name}: at most {YEAR} seconds (a year) are expected"
    assert json.loads(answer.body) == {"error": told_so}
    assert controller.emitted == []


async def test_a_year_is_taken_and_more_replicas_than_there_can_be_are_not(
    controller: Controller, path: Path
) -> None:
    url = "/api/v1/models/tiny/scale"
    assert (await post(path, url, b'{"replicas": 1, "seconds": 31536000}')).status == 202
    assert (await post(path, url, b'{"replicas": 99999999999999999999}')).status == 400
    assert controller.emitted == [ScaleHeld("tiny", 1, float(YEAR), "admin API")]


@pytest.mark.parametrize(
    ("by", "kept"),
    [
        ("x" * 100_000, "x" * 64),
        ("\x1b[31mevil\nline\x00", "[31mevilline"),
        ("  the  one ", "the one"),
        ("你好", "你好"),
        ("\ud800\x07", "admin API"),
        ("", "admin API"),
    ],
)
async def test_who_asks_is_kept_in_at_most_64_printable_characters(
    controller: Controller, path: Path, by: str, kept: str
) -> None:
    assert (await post(path, "/api/v1/down", json.dumps({"by": by}).encode())).status == 202
    assert controller.emitted == [DownRequested(kept)]
