"""The admin API: everything on the unix socket, reading only on TCP.

Whoever may open the socket (0660) may give back the fleet; on TCP nobody is asked who they are,
so nothing can be changed there and nothing secret is shown.
"""

from __future__ import annotations

from aiohttp import web

from elasticd.core.events import GatewayBegan
from elasticd.ops.admin_changes import Changing
from elasticd.ops.admin_events import Events
from elasticd.ops.admin_http import Refused, body_of, clear_errors, json_answer, number
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_report import events_of_report, totals_of_report
from elasticd.ops.metrics import CONTENT_TYPE
from elasticd.routing_table import table_to_json

LONGEST_WAIT = 60.0
"""Seconds for which a long poll may be held."""

LARGEST_BODY = 4 * 1024 * 1024


def reading_app(ports: AdminPorts) -> web.Application:
    """What anyone may see: health and status."""
    app = web.Application(middlewares=[clear_errors], client_max_size=LARGEST_BODY)
    _Reading(ports).add_to(app.router)
    Events(ports, LONGEST_WAIT).add_to(app)
    return app


def full_app(ports: AdminPorts) -> web.Application:
    """Status, commands, and the gateway's side of the controller."""
    app = reading_app(ports)
    Changing(ports).add_to(app.router)
    _Internal(ports).add_to(app.router)
    return app


class _Reading:
    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/healthz", self.healthz)
        router.add_get("/readyz", self.readyz)
        router.add_get("/metrics", self.metrics)
        router.add_get("/api/v1/status", self.status)

    async def healthz(self, _request: web.Request) -> web.Response:
        problem = self._ports.problem()
        body = {"alive": not problem, "problem": problem}
        return json_answer(body, 503 if problem else 200)

    async def readyz(self, _request: web.Request) -> web.Response:
        problem = self._ports.problem()
        waiting = [problem] if problem else self._ports.waiting_for()
        return json_answer({"ready": not waiting, "waiting_for": waiting}, 503 if waiting else 200)

    async def metrics(self, _request: web.Request) -> web.Response:
        text = self._ports.requests.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def status(self, _request: web.Request) -> web.Response:
        return json_answer(self._ports.status())


class _Internal:
    """The gateway's long poll and reports."""

    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/internal/v1/table", self.table)
        router.add_post("/internal/v1/report", self.report)

    async def table(self, request: web.Request) -> web.Response:
        epoch, version = (number(request, name, int) for name in ("epoch", "version"))
        wait = min(number(request, "wait", float), LONGEST_WAIT)
        table = await self._ports.tables.wait_for_other(epoch, version, wait)
        if table is None:
            return web.Response(status=204)
        return json_answer({**table_to_json(table), "at": self._ports.now()})

    async def report(self, request: web.Request) -> web.Response:
        report = await body_of(request)
        try:
            events, totals = events_of_report(report), totals_of_report(report)
        except ValueError as bad:
            raise Refused(400, str(bad)) from bad
        self._ports.requests.take(totals)
        if self._ports.requests.began_anew(str(report.get("life") or "")):
            self._ports.emit(GatewayBegan())
        for event in events:
            self._ports.emit(event)
        return web.Response(status=204)
