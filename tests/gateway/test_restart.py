"""A gateway that is replaced by another one on the same socket loses nothing."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from elasticd.gateway import Gateway
from elasticd.ops.inherited import VARIABLE, bound
from tests.bench.stub_engine import chat_context, expected
from tests.gateway.harness import Stand, StubEngine, events_of, eventually, stand
from tests.gateway.test_continuation import MESSAGES, text_of


async def test_streams_end_with_the_old_one_and_who_comes_meanwhile_gets_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [sock] = bound("127.0.0.1", 0)
    monkeypatch.setenv(VARIABLE, str(os.dup(sock.fileno())))
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint(slots=50))
        assert s.gateway.port == sock.getsockname()[1]
        streams = [asyncio.create_task(_told(s)) for _ in range(5)]
        await eventually(lambda: engine.counts["tokens"] > 10, "they stream")
        stopping = asyncio.create_task(s.gateway.__aexit__(None, None, None))
        await eventually(lambda: s.gateway.stopping, "it takes no more")
        latecomer = asyncio.create_task(_told(s))
        monkeypatch.setenv(VARIABLE, str(os.dup(sock.fileno())))
        async with Gateway(replace(s.config, state_dir=s.home)):
            for body in await asyncio.gather(*streams, latecomer):
                assert text_of(events_of(body)) == expected(chat_context(MESSAGES), 100)
            await stopping
    sock.close()


async def _told(s: Stand) -> bytes:
    async with s.post(stream=True, max_tokens=100) as answer:
        return await answer.read()  # type: ignore[no-any-return]
