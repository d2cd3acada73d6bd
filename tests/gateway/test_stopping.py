"""Promises of the end: what runs is finished, what cannot be is told, nothing hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys

import aiohttp
import pytest

from elasticd.gateway.table_store import save_table
from tests.gateway.harness import StubEngine, error_of, events_of, eventually, stand
from tests.traffic.tables import route, table


async def test_stopping_takes_nothing_new_and_finishes_what_runs() -> None:
    async with stand() as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=60) as answer:
            first = await answer.content.readuntil(b"\n\n")
            stop = asyncio.ensure_future(s.gateway.__aexit__(None, None, None))
            await eventually(lambda: s.gateway.stopping, "it is stopping")
            with pytest.raises(aiohttp.ClientConnectorError):
                await s.client.get(s.url + "/health")
            events = events_of(first + await answer.read())
        assert events[-1] == "[DONE]"
        await asyncio.wait_for(stop, 5)


async def test_a_stream_beyond_the_limit_is_told_before_it_is_cut() -> None:
    async with stand(drain_timeout=0.1) as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=100_000) as answer:
            first = await answer.content.readuntil(b"\n\n")
            stop = asyncio.ensure_future(s.gateway.__aexit__(None, None, None))
            events = events_of(first + await answer.read())
        assert error_of(events[-1])["code"] == "gateway_stopping"
        await asyncio.wait_for(stop, 5)
        await eventually(lambda: engine.counts["aborted"] == 1, "the engine saw the stream end")


async def test_a_waiting_request_beyond_the_limit_is_told() -> None:
    async with stand(drain_timeout=0.1) as s:
        await s.publish()

        async def waits() -> tuple[int, str]:
            async with s.post() as answer:
                return answer.status, error_of(await answer.read())["code"]

        request = asyncio.ensure_future(waits())
        await s.report(lambda r: r["models"][0]["queued"] == 1, "it waits")
        await asyncio.wait_for(s.gateway.__aexit__(None, None, None), 5)
        assert await request == (503, "gateway_stopping")


PROGRAM = """
import asyncio, pathlib, sys
from elasticd.gateway import GatewayConfig, run_gateway
home = pathlib.Path(sys.argv[1])
asyncio.run(run_gateway(GatewayConfig(home / "admin.sock", home, port=int(sys.argv[2]))))
"""


async def test_sigterm_ends_the_process_after_its_streams() -> None:
    async with stand(controller=False) as s, StubEngine(itl_ms=5) as engine:
        save_table(s.config.table_file, table(route(engine.endpoint())))
        port = _free_port()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(s.home), str(port), stdout=asyncio.subprocess.DEVNULL
        )
        try:
            answer = await _when_up(s.client, f"http://127.0.0.1:{port}/v1/chat/completions")
            first = await answer.content.readuntil(b"\n\n")
            os.kill(process.pid, signal.SIGTERM)
            events = events_of(first + await answer.read())
            assert events[-1] == "[DONE]"
            assert json.loads(events[0])["object"] == "chat.completion.chunk"
            assert await asyncio.wait_for(process.wait(), 10) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _when_up(client: aiohttp.ClientSession, url: str) -> aiohttp.ClientResponse:
    body = {"model": "m", "messages": [], "stream": True, "max_tokens": 60}
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.post(url, json=body)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
