"""A gateway on real sockets, between a fake controller and engines that do as they are told.

`FakeController` speaks the admin socket's two internal calls. `ScriptedEngine` plays one script per
connection, byte by byte if need be. `StubEngine` is the benchmark kit's replica, in this process.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import structlog.testing
from aiohttp import web

from elasticd.gateway import Gateway, GatewayConfig
from elasticd.routing_table import Endpoint, RoutingTable, table_to_json
from tests.bench.stub_engine import DEFAULTS, Replica
from tests.traffic.tables import endpoint, route, table

PATIENCE = 10.0


async def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Polls until the condition holds; fails with its name after `PATIENCE` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while not (value := condition()):
        assert loop.time() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.005)
    return value


class FakeController:
    """The controller's side of the admin socket: one table, and the reports it received."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: RoutingTable | None = None
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.reports: list[dict[str, Any]] = []
        self.behind = 0.0
        """Seconds by which its clock is behind ours."""
        self.followed = (0, 0)
        """Epoch and version the gateway has, as it says itself."""
        self._instead: bytes | None = None
        self.asked = 0
        """How often the table was asked for."""

    def publish(self, new: RoutingTable) -> None:
        self._table, self._instead = new, None
        self._changed.set()
        self._changed = asyncio.Event()

    def publish_bytes(self, told: bytes) -> None:
        """Says this in the place of a table, at each request, until one is published."""
        self._instead = told
        self._changed.set()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/internal/v1/table", self._serve_table)
        app.router.add_post("/internal/v1/report", self._take_report)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._path)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self._path.unlink(missing_ok=True)

    async def _serve_table(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.followed = known = int(request.query["epoch"]), int(request.query["version"])
        while self._instead is None and (
            self._table is None or (self._table.epoch, self._table.version) == known
        ):
            await self._changed.wait()
        if self._instead is not None:
            return web.Response(body=self._instead, content_type="application/json")
        assert self._table is not None
        at = time.time() - self.behind
        return web.json_response({**table_to_json(self._table), "at": at})

    async def _take_report(self, request: web.Request) -> web.Response:
        self.reports.append(await request.json())
        return web.json_response({})


@dataclass
class Received:
    """One request as an engine saw it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Connection:
    """What a script may do with its client."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, content_type: str = "text/event-stream", status: str = "200 OK") -> None:
        await self.send(
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def json(self, status: str, value: object, extra: str = "") -> None:
        body = json.dumps(value).encode()
        await self.send(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def reset(self) -> None:
        """Closes with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_client_leaves(self) -> None:
        with suppress(ConnectionError):
            await self.reader.read()
        self.left.set()


Script = Callable[[Connection], Awaitable[None]]


class ScriptedEngine:
    """Answers each request with the script; closes the connection after it. `deaf`: it
    accepts connections and answers nothing to `/health`, as what has just been killed may."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.deaf = False
        self.connections: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _silence(self) -> None:
        await asyncio.Event().wait()

    def endpoint(self, replica_id: str = "r1", **more: Any) -> Endpoint:
        return endpoint(replica_id, url=f"http://127.0.0.1:{self.port}", **more)

    def stop_listening(self) -> None:
        """New connections are refused from now on, as by a process that has ended."""
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            connection = Connection(await _read_request(reader), reader, writer)
            if connection.request.target == "/health":
                await (self._silence() if self.deaf else connection.json("200 OK", {}))
                return
            self.connections.append(connection)
            await self.script(connection)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:] if x)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)


class StubEngine:
    """A replica of the benchmark kit's stub, with its settings at hand."""

    def __init__(self, **settings: Any) -> None:
        self.replica = Replica(0, {**DEFAULTS, **settings})

    async def __aenter__(self) -> Self:
        await self.replica.listen()
        self.replica.port = self.replica.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.replica.down()

    def set(self, **settings: Any) -> None:
        self.replica.cfg.update(settings)

    @property
    def counts(self) -> dict[str, int]:
        return self.replica.n

    def endpoint(self, replica_id: str = "r1", **more: Any) -> Endpoint:
        return endpoint(replica_id, url=f"http://127.0.0.1:{self.replica.port}", **more)


class Stand:
    """One gateway with its controller and a client."""

    def __init__(self, home: Path, controller: FakeController, **settings: Any) -> None:
        self.home = home
        self.controller = controller
        self.config = GatewayConfig(
            admin_socket=home / "admin.sock",
            state_dir=home,
            port=0,
            **{"drain_timeout": 5.0, **settings},
        )
        self.gateway = Gateway(self.config)
        self.client = aiohttp.ClientSession()
        self.logs: list[Any] = []
        self._version = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def publish(self, *endpoints: Endpoint, epoch: int = 1, **more: Any) -> None:
        """Publishes endpoints of the model `m` and waits until the gateway follows."""
        self._version += 1
        now = epoch, self._version
        self.controller.publish(
            table(route(*endpoints, **more), version=self._version, epoch=epoch)
        )
        await eventually(lambda: self.controller.followed == now, "the gateway took the table")

    def post(
        self, path: str = "/v1/chat/completions", *, headers: Any = None, **fields: Any
    ) -> Any:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        return self.client.post(self.url + path, json=body, headers=headers)

    async def report(self, condition: Callable[[dict[str, Any]], bool], what: str) -> Any:
        """The first report that fulfils the condition."""
        return await eventually(
            lambda: next((r for r in self.controller.reports if condition(r)), None), what
        )


@asynccontextmanager
async def stand(*, controller: bool = True, **settings: Any) -> AsyncIterator[Stand]:
    """A running gateway; its home is short, as unix socket paths must be."""
    home = Path(tempfile.mkdtemp(prefix="egw"))
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        fake = FakeController(home / "admin.sock")
        stack.push_async_callback(fake.stop)
        if controller:
            await fake.start()
        made = Stand(home, fake, **settings)
        stack.push_async_callback(made.client.close)
        made.logs = stack.enter_context(structlog.testing.capture_logs())
        await stack.enter_async_context(made.gateway)
        yield made


def error_of(body: bytes | str) -> dict[str, Any]:
    """The error object of an answer, checked for its shape."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def events_of(body: bytes) -> list[str]:
    """The data of each event; comments left out. Fails on half an event."""
    assert body.endswith(b"\n\n"), body[-80:]
    blocks = body.decode().split("\n\n")[:-1]
    return [b.removeprefix("data: ") for b in blocks if not b.startswith(":")]
