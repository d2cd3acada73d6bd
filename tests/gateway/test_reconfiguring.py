"""Promises about a new configuration: in force without a restart, or refused as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace

import aiohttp
import pytest

from elasticd.errors import UsageError
from elasticd.gateway import ApiKey
from elasticd.gateway.keys import hash_of
from elasticd.gateway.table_store import save_table
from tests.gateway.harness import StubEngine, error_of, events_of, eventually, stand
from tests.traffic.tables import route, table

OLD, NEW = ApiKey("old", hash_of("sk-old")), ApiKey("new", hash_of("sk-new"))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_new_keys_count_at_once_and_what_runs_goes_on() -> None:
    async with stand(api_keys=(OLD,)) as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=60, headers=bearer("sk-old")) as answer:
            first = await answer.content.readuntil(b"\n\n")
            s.gateway.reconfigure(replace(s.config, api_keys=(NEW,)))
            for key, status in (("sk-old", 401), ("sk-new", 200)):
                async with s.client.get(s.url + "/v1/models", headers=bearer(key)) as models:
                    assert models.status == status
            assert events_of(first + await answer.read())[-1] == "[DONE]"


async def test_a_keys_requests_count_on_under_its_new_limit() -> None:
    async with stand(api_keys=(OLD,)) as s, StubEngine(itl_ms=5) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True, max_tokens=100_000, headers=bearer("sk-old")) as answer:
            await answer.content.readuntil(b"\n\n")
            s.gateway.reconfigure(
                replace(s.config, api_keys=(replace(OLD, max_ongoing_requests=1),))
            )
            async with s.post(headers=bearer("sk-old")) as refused:
                assert refused.status == 429
            answer.close()
        await eventually(lambda: engine.counts["aborted"] == 1, "the stream is over")
        async with s.post(max_tokens=1, headers=bearer("sk-old")) as answer:
            assert answer.status == 200


async def test_new_time_limits_hold_for_what_comes_from_now_on() -> None:
    async with stand() as s, StubEngine(fault="hang", fault_after=1) as engine:
        await s.publish(engine.endpoint())
        s.gateway.reconfigure(replace(s.config, idle_timeout=0.1))
        async with s.post(stream=True, max_tokens=5) as answer:
            events = events_of(await answer.read())
        assert error_of(events[-1])["code"] == "idle_timeout"
        s.gateway.reconfigure(replace(s.config, first_byte_timeout=0.1, drain_timeout=0.2))
        engine.set(fault_after=0)
        async with s.post(max_tokens=5) as answer:
            assert error_of(await answer.read())["code"] == "first_byte_timeout"
        assert s.gateway.config.drain_timeout == 0.2
        s.gateway.reconfigure(replace(s.config, max_body=10))
        async with s.post() as answer:
            assert answer.status == 413


async def test_the_last_key_is_not_taken_from_a_gateway_that_is_reachable_from_outside() -> None:
    async with stand(api_keys=(OLD,), host="0.0.0.0") as s:
        await s.publish()
        with pytest.raises(UsageError, match=r"gateway\.listen"):
            s.gateway.reconfigure(replace(s.config, host="127.0.0.1", api_keys=()))
        async with s.client.get(s.url + "/v1/models") as answer:
            assert answer.status == 401
        async with s.client.get(s.url + "/v1/models", headers=bearer("sk-old")) as answer:
            assert answer.status == 200


PROGRAM = """
import asyncio, pathlib, sys
from dataclasses import replace
from elasticd.errors import UsageError
from elasticd.gateway import ApiKey, GatewayConfig, run_gateway
home = pathlib.Path(sys.argv[1])
config = GatewayConfig(home / "admin.sock", home, port=int(sys.argv[2]))

def read_again():
    text = (home / "keys").read_text()
    if text == "bad":
        raise UsageError("it is bad")
    if text == "worse":
        raise ZeroDivisionError
    return replace(config, api_keys=(ApiKey("new", text),))

asyncio.run(run_gateway(config, read_again if sys.argv[3] == "reads" else None))
"""


@pytest.mark.parametrize("reads", ["reads", "ignores"])
async def test_sighup_never_ends_the_process_and_puts_in_force_what_can_be_read(
    reads: str,
) -> None:
    async with stand(controller=False) as s, StubEngine() as engine:
        save_table(s.config.table_file, table(route(engine.endpoint())))
        port = _free_port()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(s.home), str(port), reads,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        url = f"http://127.0.0.1:{port}/v1/models"
        try:
            await _wait_for_status(s.client, url, 200)
            for text, told in (("bad", b"refused"), ("worse", b"not read")):
                (s.home / "keys").write_text(text)
                os.kill(process.pid, signal.SIGHUP)
                if reads == "reads":
                    await _wait_for_line(process.stdout, told)
                await _wait_for_status(s.client, url, 200)
            (s.home / "keys").write_text(hash_of("sk-new"))
            os.kill(process.pid, signal.SIGHUP)
            await _wait_for_status(s.client, url, 401 if reads == "reads" else 200)
            async with s.client.get(url, headers=bearer("sk-new")) as answer:
                assert answer.status == 200
            assert process.returncode is None
            process.terminate()
            await process.communicate()
            assert process.returncode == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


async def _wait_for_line(output: asyncio.StreamReader, text: bytes) -> None:
    async with asyncio.timeout(20):
        while text not in (line := await output.readline()):
            assert line, "it has ended"


async def _wait_for_status(client: aiohttp.ClientSession, url: str, status: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                async with client.get(url) as answer:
                    if answer.status == status:
                        return
            except aiohttp.ClientConnectorError:
                pass
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
