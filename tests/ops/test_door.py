"""A process that has no descriptors left says so once, and takes clients again afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import structlog.testing
from aiohttp import web

from elasticd.ops import door, folded
from elasticd.ops.connection import Connection
from elasticd.ops.door import Door
from elasticd.ops.folded import Folded, fold_accepts

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE = 10.0


@contextmanager
def no_descriptors() -> Iterator[None]:
    """As if every descriptor were taken; what is open stays open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def open_door(most: int) -> AsyncIterator[tuple[Door, int]]:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="here")

    server, loop = web.Server(answer), asyncio.get_running_loop()
    sock = socket.create_server(("127.0.0.1", 0))
    made = Door("test", [sock], lambda: Connection(server, loop=loop, access_log=None), most)
    port = sock.getsockname()[1]
    made.open(100)
    try:
        yield made, port
    finally:
        made.close()
        server.pre_shutdown()
        await server.shutdown(1.0)


async def until(condition: object, what: str) -> None:
    assert callable(condition)
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


async def test_without_descriptors_one_line_is_logged_and_who_waited_is_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "_PAUSE", 0.01)
    with structlog.testing.capture_logs() as logs:
        async with open_door(10) as (_, port):
            with socket.socket() as client:
                client.setblocking(False)
                failures = 0
                accept = socket.socket.accept

                def counted(sock: socket.socket) -> object:
                    nonlocal failures
                    try:
                        return accept(sock)
                    except OSError as failed:
                        failures += not isinstance(failed, BlockingIOError)
                        raise

                monkeypatch.setattr(socket.socket, "accept", counted)
                with no_descriptors():
                    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
                    await until(lambda: failures >= 3, "it was tried again and again")
                    told = [e for e in logs if "no descriptors" in e["event"]]
                    assert [(e["count"], e["listener"]) for e in told] == [(1, "test")]
                async with asyncio.timeout(PATIENCE):
                    await asyncio.get_running_loop().sock_sendall(client, ASK)
                    data = await asyncio.get_running_loop().sock_recv(client, 100)
                assert data.startswith(b"HTTP/1.1 200 ")
    assert len([e for e in logs if "no descriptors" in e["event"]]) == 2, (
        "the rest is told at the end"
    )


async def test_the_connection_that_idled_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "_YOUNG", 0.0)
    async with open_door(2) as (made, port):
        first, first_writer = await asyncio.open_connection("127.0.0.1", port)
        second, second_writer = await asyncio.open_connection("127.0.0.1", port)
        for reader, writer in ((second, second_writer), (first, first_writer)):
            writer.write(ASK)
            assert b"200" in await reader.readuntil(b"here")
        third, third_writer = await asyncio.open_connection("127.0.0.1", port)
        third_writer.write(ASK)
        async with asyncio.timeout(PATIENCE):
            assert b"200" in await third.readuntil(b"here")
            assert await second.read() == b"", "it had waited longest for a request"
        first_writer.write(ASK)
        assert b"200" in await first.readuntil(b"here")
        assert made.inside == 2
        for writer in (first_writer, second_writer, third_writer):
            writer.close()


async def test_connections_that_were_opened_just_now_are_not_closed_for_others() -> None:
    async with open_door(1) as (_, port):
        with structlog.testing.capture_logs() as logs:
            first, first_writer = await asyncio.open_connection("127.0.0.1", port)
            _, second_writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: logs, "the second waits")
            first_writer.write(ASK)
            assert b"200" in await first.readuntil(b"here")
        assert logs[0]["idle_ones_closed"] == 0
        for writer in (first_writer, second_writer):
            writer.close()


async def test_what_asyncios_own_listeners_say_is_one_line_and_other_faults_are_told_as_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    with structlog.testing.capture_logs() as logs:
        fold_accepts(loop)
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, backlog=50)
        async with server:
            with socket.socket() as client:
                client.setblocking(False)
                with no_descriptors():
                    address = server.sockets[0].getsockname()
                    await loop.sock_connect(client, address)
                    await until(lambda: logs, "it is told")
        assert [(e["count"], e["log_level"]) for e in logs] == [(1, "warning")]
        assert "Too many open files" in logs[0]["error"]
        assert not caplog.records
        loop.call_exception_handler({"message": "something else"})
        assert [r.message for r in caplog.records] == ["something else"]


async def test_what_comes_after_the_first_is_one_line_a_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folded, "PERIOD", 0.02)
    with structlog.testing.capture_logs() as logs:
        kind = Folded("full", limit=3)
        for number in range(1000):
            kind.note(last=number)
        await until(lambda: len(logs) == 2, "the rest is told")
        kind.close()
    assert [(e["count"], e["last"], e["limit"]) for e in logs] == [(1, 0, 3), (999, 999, 3)]
