"""What the client makes of answers: refused, or unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from elasticd.agent_api.client import AgentClient, AgentRefused, AgentUnreachable

Answer = Callable[[web.Request], web.StreamResponse]


@pytest.fixture
async def answered() -> AsyncIterator[Any]:
    """Makes a client whose agent answers everything with one answer."""
    made: list[Any] = []

    async def make(answer: Answer) -> AgentClient:
        async def handle(request: web.Request) -> web.StreamResponse:
            return answer(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        server = TestServer(app)
        await server.start_server()
        client = AgentClient(str(server.make_url("/")), "the-token")
        made.extend([client.aclose, server.close])
        return client

    yield make
    for close in made:
        await close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
async def test_a_no_that_stays_a_no_is_refused(answered: Any, status: int) -> None:
    client = await answered(lambda _: web.json_response({"error": "because"}, status=status))
    with pytest.raises(AgentRefused, match="because"):
        await client.stop("r", 1, 0.0)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
async def test_not_now_is_not_a_refusal(answered: Any, status: int) -> None:
    client = await answered(lambda _: web.json_response({"error": "not now"}, status=status))
    with pytest.raises(AgentUnreachable, match="not now"):
        await client.drain_node("n")


@pytest.mark.parametrize("body", ["<html>", "[]", "", '"x"', "{}"])
async def test_a_strangers_answer_is_no_state(answered: Any, body: str) -> None:
    client = await answered(lambda _: web.Response(text=body))
    with pytest.raises(AgentUnreachable):
        await client.state()


async def test_each_call_shows_the_token(answered: Any) -> None:
    seen: list[str] = []

    def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({}, status=202)

    client = await answered(answer)
    await client.stop("r", 1, 0.0)
    await client.drain_node("n")
    assert seen == ["Bearer the-token"] * 2
