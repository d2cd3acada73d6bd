"""The gateway process: listens, answers what it can itself, hands the rest to the dispatcher.

`Gateway` is the parts list. It starts from the table on disk, follows the controller, and when it
is told to stop finishes what runs within a limit.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import structlog
from aiohttp import web

from elasticd.clock import Clock
from elasticd.gateway import openai
from elasticd.gateway.call import read_call, request_id_of
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.desk import Desk
from elasticd.gateway.dispatcher import Dispatcher
from elasticd.gateway.feed import ControllerLink, TableFeed
from elasticd.gateway.openai import ApiError
from elasticd.gateway.paths import is_plain
from elasticd.gateway.relay import Relay
from elasticd.gateway.reply import Reply
from elasticd.gateway.reporter import Reporter
from elasticd.gateway.table_store import load_table
from elasticd.traffic.admission import Admission

_log = structlog.get_logger("elasticd.gateway")

_MODELS = "/v1/models"


async def run_gateway(config: GatewayConfig) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what runs."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    try:
        async with Gateway(config):
            await stop.wait()
            _log.info("gateway stopping", limit=config.drain_timeout)
    finally:
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(name)


class Gateway:
    """A gateway that serves while its `async with` block runs; `port` is the one it got."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._admission = Admission()
        self._created = int(time.time())
        self._running: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._stack = AsyncExitStack()
        self.port = config.port

    @property
    def stopping(self) -> bool:
        """Whether it takes no more requests."""
        return self._stopping

    async def __aenter__(self) -> Self:
        """Builds everything in order; it is taken down in reverse."""
        config, stack = self._config, self._stack
        async with stack:
            link = ControllerLink(config.admin_socket)
            stack.push_async_callback(link.aclose)
            relay = Relay(config.connect_timeout)
            stack.push_async_callback(relay.aclose)
            reporter = Reporter(link, self._admission)
            desk = Desk(self._admission, Clock().now, reporter.poke)
            stack.callback(desk.close)
            table = load_table(config.table_file)
            if table is not None:
                desk.apply(table)
            self._dispatcher = Dispatcher(config, desk, relay, reporter)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            feed = TableFeed(link, config.table_file, table, desk.apply)
            for work, name in ((feed.run(), "table feed"), (reporter.run(), "reporter")):
                stack.callback(tasks.create_task(work, name=name).cancel)
            await self._listen(stack)
            self._stack = stack.pop_all()
        _log.info("gateway listening", host=config.host, port=self.port, table=table is not None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _listen(self, stack: AsyncExitStack) -> None:
        config = self._config
        app = web.Application(client_max_size=config.max_body)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            app,
            handle_signals=False,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=75.0,
            shutdown_timeout=1.0,
            max_line_size=config.max_header,
            max_field_size=config.max_header,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, config.host, config.port, backlog=4096)
        await site.start()
        stack.push_async_callback(self._drain, site)
        self.port = runner.addresses[0][1]

    async def _drain(self, site: web.TCPSite) -> None:
        """Takes no more, lets what runs finish, and tells the rest before it is cut."""
        self._stopping = True
        await site.stop()
        if self._running:
            await asyncio.wait(set(self._running), timeout=self._config.drain_timeout)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=1.0)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        request_id = request_id_of(request)
        reply = Reply(request, request_id, self._config.comment_interval)
        try:
            await self._answer(request, request_id, reply)
        except ApiError as error:
            _log.info("request failed", request_id=request_id, code=error.code, error=error.message)
            await self._tell(reply, request_id, error)
        except ConnectionError:
            # Only the client's connection: those to replicas end as `ReplicaFailed`.
            _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
            raise
        except asyncio.CancelledError:
            if not self._stopping or request.transport is None:
                _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
                raise
            task.uncancel()
            await self._tell(reply, request_id, openai.stopping())
        except Exception:
            _log.exception("request met a fault", request_id=request_id)
            await self._tell(reply, request_id, openai.internal())
        finally:
            self._running.discard(task)
        if self._stopping:
            reply.response.force_close()
        return reply.response

    async def _tell(self, reply: Reply, request_id: str, error: ApiError) -> None:
        try:
            await reply.fail(error)
        except ConnectionError:
            _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
            raise

    async def _answer(self, request: web.Request, request_id: str, reply: Reply) -> None:
        path = request.rel_url.raw_path
        if path == "/health":
            await self._health(reply)
        elif self._stopping:
            raise openai.stopping()
        elif not is_plain(path):
            raise openai.not_plain(path)
        elif path == _MODELS or (path.startswith(f"{_MODELS}/") and request.method == "GET"):
            await self._models(request, reply)
        elif path.startswith("/v1/"):
            await self._dispatcher.answer(await read_call(request, request_id), reply)
        else:
            raise openai.not_found(path)

    async def _health(self, reply: Reply) -> None:
        """Fine means: it takes requests. Whether models have replicas is not its business."""
        table = self._admission.table
        state = "stopping" if self._stopping else "ok" if table else "no routing table"
        body = {"status": state, "epoch": table and table.epoch, "version": table and table.version}
        await reply.json(200 if state == "ok" else 503, json.dumps(body).encode())

    async def _models(self, request: web.Request, reply: Reply) -> None:
        table = self._admission.table
        if request.method != "GET":
            message = f"{request.method} is not possible on {_MODELS}"
            raise ApiError(405, "method_not_allowed", message)
        if table is None:
            raise openai.no_table()
        name = request.path.removeprefix(_MODELS).strip("/")
        if not name:
            await reply.json(200, openai.model_list(table, self._created))
        elif any(route.model == name for route in table.models):
            await reply.json(200, openai.model_answer(name, self._created))
        else:
            raise openai.model_not_found(name)
