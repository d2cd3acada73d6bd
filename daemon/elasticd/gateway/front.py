"""What clients meet: who asks, what for, and the telling of every outcome.

Answers itself what needs no replica, hands the rest to the dispatcher, and keeps count of what
runs so that the gateway can stop without cutting anything it need not cut.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from urllib.parse import unquote

import structlog

from elasticd.gateway import errors, openai
from elasticd.gateway.body import plain_body, read_body
from elasticd.gateway.call import call_of, request_id_of
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.dispatcher import Dispatcher
from elasticd.gateway.errors import ApiError
from elasticd.gateway.http.request import Request
from elasticd.gateway.keys import Caller, KeyRing
from elasticd.gateway.paths import MODELS, READING, is_plain, needs_replica
from elasticd.gateway.reply import Reply
from elasticd.routing_table import RoutingTable

_log = structlog.get_logger("elasticd.gateway")


class Front:
    """Handles requests. `table` gives the table in force."""

    def __init__(
        self,
        config: GatewayConfig,
        table: Callable[[], RoutingTable | None],
        keys: KeyRing,
        dispatcher: Dispatcher,
    ) -> None:
        self._config = config
        self._table = table
        self._keys = keys
        self._dispatcher = dispatcher
        self._created = int(time.time())
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[object]] = set()
        self.stopping = False

    def reconfigure(self, config: GatewayConfig) -> None:
        """Other limits for requests from now on."""
        self._config = config

    async def drain(self, seconds: float) -> None:
        """Takes no more, lets what runs finish, and tells the rest before it is cut."""
        self.stopping = True
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=1.0)

    async def handle(self, request: Request) -> None:
        """Gives every request an answer, and every answer a request id."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._running.add(task)
        request_id = request_id_of(request)
        reply = Reply(request.answer, request_id, self._config.comment_interval)
        try:
            caller = self._let_in(request, reply)
            if caller is not None:
                await self._call(request, request_id, caller, reply)
        except ApiError as error:
            _log.info("request failed", request_id=request_id, code=error.code, error=error.message)
            self._tell(reply, request_id, error)
        except ConnectionError:
            # Only the client's connection: those to replicas end as `ReplicaFailed`.
            _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
            raise
        except asyncio.CancelledError:
            if not self.stopping or request.answer.gone:
                _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
                raise
            task.uncancel()
            self._tell(reply, request_id, errors.stopping())
        except Exception:
            _log.exception("request met a fault", request_id=request_id)
            self._tell(reply, request_id, errors.internal())
        finally:
            self._running.discard(task)

    def _tell(self, reply: Reply, request_id: str, error: ApiError) -> None:
        try:
            reply.fail(error)
        except ConnectionError:
            _log.info("client disconnected", request_id=request_id, bytes_sent=reply.bytes_sent)
            raise

    def _let_in(self, request: Request, reply: Reply) -> Caller | None:
        """Who asks a replica; `None`: the answer is ours, and given. Raises `ApiError`."""
        path = request.path
        if path == "/health":
            self._health(request, reply)
            return None
        if self.stopping:
            raise errors.stopping()
        caller = self._keys.caller(request.headers.get("Authorization"))
        if not is_plain(path):
            raise errors.not_plain(path)
        if needs_replica(request.method, path):
            return caller
        if not path.startswith(MODELS):
            raise errors.not_found(path)
        self._models(request, reply)
        return None

    async def _call(self, request: Request, request_id: str, caller: Caller, reply: Reply) -> None:
        """A request for a replica; it counts for its key from before its body is read."""
        config = self._config
        self._keys.begin(caller)
        try:
            body = plain_body(request, config.max_body)
            if body is None:
                body = await read_body(request, config.max_body, config.body_timeout)
            call = call_of(request, body, request_id, caller.max_priority)
            await self._dispatcher.answer(call, caller.name, reply)
        finally:
            self._keys.end(caller)

    def _health(self, request: Request, reply: Reply) -> None:
        """Fine means: it takes requests. Whether models have replicas is not its business."""
        if request.method not in READING:
            raise errors.wrong_method(request.method, "/health", "GET")
        table = self._table()
        state = "stopping" if self.stopping else "ok" if table else "no routing table"
        body = {"status": state, "epoch": table and table.epoch, "version": table and table.version}
        reply.json(200 if state == "ok" else 503, json.dumps(body).encode())

    def _models(self, request: Request, reply: Reply) -> None:
        table = self._table()
        if request.method not in READING:
            raise errors.wrong_method(request.method, MODELS, "GET")
        if table is None:
            raise errors.no_table()
        name = unquote(request.path.removeprefix(MODELS)).strip("/")
        if not name:
            reply.json(200, openai.model_list(table, self._created))
        elif any(route.model == name for route in table.models):
            reply.json(200, openai.model_answer(name, self._created))
        else:
            raise errors.model_not_found(name)
