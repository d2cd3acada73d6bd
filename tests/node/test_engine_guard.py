"""What the engine's door lets in."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.node.engine_guard import KeyGuard

PATHS = (
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
    "/v1/models",
    "/invocations",
    "/health/",
    "/Health",
    "//health",
    "/metrics/x",
    "/",
)


async def _asked(
    path: str, *headers: tuple[bytes, bytes], kind: str = "http"
) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the application was reached, and what was sent."""
    reached: list[str] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def receive() -> dict[str, Any]:
        raise AssertionError("the guard reads nothing")

    async def send(message: Any) -> None:
        sent.append(message)

    await KeyGuard(app)({"type": kind, "path": path, "headers": list(headers)}, receive, send)
    return bool(reached), sent


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICD_ENGINE_KEY", "sesame")


@pytest.mark.parametrize("path", PATHS)
async def test_everything_but_health_and_metrics_wants_the_key(path: str) -> None:
    reached, sent = await _asked(path)
    assert not reached
    assert sent[0]["status"] == 401


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_are_open(path: str) -> None:
    assert (await _asked(path))[0]


@pytest.mark.parametrize("path", PATHS)
async def test_the_key_opens_every_path(path: str) -> None:
    assert (await _asked(path, (b"Authorization", b"Bearer sesame")))[0]


@pytest.mark.parametrize("shown", [b"sesame", b"bearer sesame", b"Bearer sesam", b"Bearer sesame "])
async def test_almost_the_key_is_refused(shown: bytes) -> None:
    assert not (await _asked("/v1/models", (b"authorization", shown)))[0]


async def test_two_authorizations_are_refused_even_if_one_is_right() -> None:
    right, wrong = (b"authorization", b"Bearer sesame"), (b"authorization", b"Bearer x")
    assert not (await _asked("/v1/models", right, wrong))[0]


async def test_a_websocket_without_the_key_is_closed() -> None:
    reached, sent = await _asked("/health", kind="websocket")
    assert not reached
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_the_lifespan_passes() -> None:
    assert (await _asked("", kind="lifespan"))[0]


def test_without_a_key_there_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICD_ENGINE_KEY")
    with pytest.raises(RuntimeError, match="refusing to serve"):
        KeyGuard(None)  # type: ignore[arg-type]
