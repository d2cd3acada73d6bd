"""The admin API: everything on the unix socket, reading only on TCP.

Whoever may open the socket (0660) may give back the fleet; on TCP nobody is asked who they are,
so nothing can be changed there and nothing secret is shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from elasticd.core.events import DownRequested
from elasticd.ops.admin_ports import AdminPorts, DrillRefused
from elasticd.ops.admin_report import events_of_report
from elasticd.routing_table import table_to_json

LONGEST_WAIT = 60.0
"""Seconds for which a long poll may be held."""

LARGEST_BODY = 4 * 1024 * 1024
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reading_app(ports: AdminPorts) -> web.Application:
    """What anyone may see: health and status."""
    app = web.Application(middlewares=[_clear_errors], client_max_size=LARGEST_BODY)
    _add_reading(app, ports)
    return app


def full_app(ports: AdminPorts) -> web.Application:
    """Status, commands, and the gateway's side of the controller."""
    app = web.Application(middlewares=[_clear_errors], client_max_size=LARGEST_BODY)
    _add_reading(app, ports)
    changing = _Changing(ports)
    internal = _Internal(ports)
    app.router.add_post("/api/v1/down", changing.down)
    app.router.add_post("/api/v1/nodes/{node}/preempt", changing.preempt)
    app.router.add_get("/internal/v1/table", internal.table)
    app.router.add_post("/internal/v1/report", internal.report)
    return app


def _add_reading(app: web.Application, ports: AdminPorts) -> None:
    reading = _Reading(ports)
    app.router.add_get("/healthz", reading.healthz)
    app.router.add_get("/readyz", reading.readyz)
    app.router.add_get("/api/v1/status", reading.status)


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Reading:
    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    async def healthz(self, _request: web.Request) -> web.Response:
        problem = self._ports.problem()
        body = {"alive": not problem, "problem": problem}
        return _json(body, 503 if problem else 200)

    async def readyz(self, _request: web.Request) -> web.Response:
        problem = self._ports.problem()
        waiting = [problem] if problem else self._ports.waiting_for()
        return _json({"ready": not waiting, "waiting_for": waiting}, 503 if waiting else 200)

    async def status(self, _request: web.Request) -> web.Response:
        return _json(self._ports.status())


class _Changing:
    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    async def down(self, request: web.Request) -> web.Response:
        body = await _body(request)
        by = body.get("by") if isinstance(body, dict) else None
        self._ports.emit(DownRequested(by=by if isinstance(by, str) and by else "admin API"))
        return _json({"accepted": True}, 202)

    async def preempt(self, request: web.Request) -> web.Response:
        body = await _body(request)
        notice = body.get("notice") if isinstance(body, dict) else math.nan
        if notice is not None and not _is_duration(notice):
            raise _Refused(400, "notice: seconds from 0 or null are expected")
        try:
            done = await self._ports.preempt(request.match_info["node"], notice)
        except DrillRefused as refused:
            raise _Refused(refused.status, str(refused)) from refused
        return _json(done)


class _Internal:
    """The gateway's long poll and reports."""

    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    async def table(self, request: web.Request) -> web.Response:
        epoch, version = (_number(request, name, int) for name in ("epoch", "version"))
        wait = min(_number(request, "wait", float), LONGEST_WAIT)
        table = await self._ports.tables.wait_for_other(epoch, version, wait)
        return web.Response(status=204) if table is None else _json(table_to_json(table))

    async def report(self, request: web.Request) -> web.Response:
        try:
            events = events_of_report(await _body(request))
        except ValueError as bad:
            raise _Refused(400, str(bad)) from bad
        for event in events:
            self._ports.emit(event)
        return web.Response(status=204)


def _number(request: web.Request, name: str, kind: type[Any]) -> Any:
    try:
        value = kind(request.query.get(name, "0"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _Refused(400, f"{name}: a number is expected")
    return value


def _is_duration(value: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and math.isfinite(value) and value >= 0


async def _body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return {}
    try:
        return json.loads(raw)
    except ValueError as bad:
        raise _Refused(400, f"the body is not JSON: {bad}") from bad


def _json(value: Any, status: int = 200) -> web.Response:
    return web.json_response(
        value, status=status, dumps=lambda v: json.dumps(v, ensure_ascii=False, allow_nan=False)
    )


@web.middleware
async def _clear_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every refusal, the router's too, is JSON with one message."""
    try:
        return await handler(request)
    except _Refused as refused:
        return _json({"error": str(refused)}, refused.status)
    except web.HTTPException as refused:
        message = f"{request.method} {request.path}: {refused.reason}"
        return _json({"error": message}, refused.status)
