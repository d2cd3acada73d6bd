"""The agent's HTTP surface, version 1 of `agent_api`. Knows no ray.

The controller shows the agent token; a fresh machine its join token, once; a joined machine its
report token. Errors are `{"error": "…"}` with one message for people.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from elasticd.agent_api.messages import (
    ClusterState,
    JoinAnswer,
    JoinRequest,
    ReplicaOrder,
    WatcherReport,
)
from elasticd.cluster_secret import ClusterSecret
from elasticd.node.versions import understood
from elasticd.ray_side.cluster import Cluster, DriverLost, HeadAway
from elasticd.ray_side.nodes import Joins, Nodes
from elasticd.ray_side.notices import read_notices
from elasticd.ray_side.publication import Publication
from elasticd.ray_side.replicas import OrderRefused, Replicas

LONGEST_WAIT = 60.0
BODY_LIMIT = 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Surface:
    """What the handlers need. `state` is the state of the moment; `join_answer` gets the node's id
    and why it is refused, if it is."""

    cluster: Cluster
    replicas: Replicas
    nodes: Nodes
    joins: Joins
    publication: Publication
    secret: ClusterSecret
    join_answer: Callable[[str, str], JoinAnswer]
    state: Callable[[], ClusterState]


class _Problem(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(surface: Surface) -> web.Application:
    """The application, ready to be run."""
    handlers = _Handlers(surface)
    app = web.Application(client_max_size=BODY_LIMIT, middlewares=[_speak_of_problems])
    app.router.add_get("/healthz", handlers.healthz)
    app.router.add_get("/v1/state", handlers.state)
    app.router.add_put("/v1/replicas/{id}", handlers.start_replica)
    app.router.add_delete("/v1/replicas/{id}", handlers.stop_replica)
    app.router.add_post("/v1/nodes/join", handlers.join)
    app.router.add_post("/v1/nodes/{id}/drain", handlers.drain_node)
    app.router.add_post("/v1/nodes/{id}/report", handlers.report)
    return app


class _Handlers:
    def __init__(self, surface: Surface) -> None:
        self._s = surface

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def state(self, request: web.Request) -> web.Response:
        self._check_controller(request)
        query = request.query
        wait = min(_number(query, "wait", 0.0), LONGEST_WAIT)
        version = int(_number(query, "version", -1))
        state = await self._s.publication.newer(query.get("incarnation", ""), version, wait)
        return web.json_response(state.to_json())

    async def start_replica(self, request: web.Request) -> web.Response:
        self._check_controller(request)
        body = await _body(request)
        try:
            order = ReplicaOrder.from_json(body)
        except TypeError as bad:
            raise _Problem(400, f"not a replica order: {bad}") from bad
        if order.replica_id != request.match_info["id"]:
            raise _Problem(400, "the order is for another replica than the path")
        self._check_complete()
        known = any(
            (r.replica_id, r.incarnation) == (order.replica_id, order.incarnation)
            for r in self._s.replicas.reports()
        )
        if not known and self._s.nodes.living(order.node_id) is None:
            raise _Problem(409, f"node {order.node_id} is not alive in Ray")
        self._s.replicas.order(order)
        return web.json_response({}, status=202)

    async def stop_replica(self, request: web.Request) -> web.Response:
        self._check_controller(request)
        if "incarnation" not in request.query:
            raise _Problem(400, "`incarnation` is missing")
        incarnation = int(_number(request.query, "incarnation", 0))
        replica_id = request.match_info["id"]
        if not any(r.replica_id == replica_id for r in self._s.replicas.reports()):
            self._check_complete()  # it may live, only not be found yet
        self._s.replicas.stop(replica_id, incarnation, _number(request.query, "grace", 0.0))
        return web.json_response({}, status=202)

    async def drain_node(self, request: web.Request) -> web.Response:
        self._check_controller(request)
        self._check_complete()
        node = self._s.nodes.living(request.match_info["id"])
        if node is not None and not node.draining:
            await self._s.cluster.drain(node.ray_node_id, "elasticd gives this node back")
        return web.json_response({}, status=202)

    async def join(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            asked = JoinRequest.from_json(body)
        except TypeError as bad:
            raise _Problem(400, f"not a join request: {bad}") from bad
        for name in ("node_id", "token", "nonce"):
            if not _is_text(getattr(asked, name)):
                raise _Problem(400, f"not a join request: `{name}` is not text")
        if not _same(asked.token, self._s.secret.join_token(asked.node_id)):
            raise _Problem(401, "wrong join token")
        if not self._s.state().head_alive:
            raise _Problem(503, "the Ray head is away; ask again")
        if not self._s.joins.take(asked.node_id, asked.nonce):
            raise _Problem(403, f"the join token of node {asked.node_id} has been used")
        if self._s.nodes.is_leaving(asked.node_id):
            raise _Problem(403, f"node {asked.node_id} is being given back")
        refused = self._s.nodes.admit(asked.node_id, _versions(asked.versions))
        return web.json_response(self._s.join_answer(asked.node_id, refused).to_json())

    async def report(self, request: web.Request) -> web.Response:
        node_id = request.match_info["id"]
        _check_bearer(request, self._s.secret.report_token(node_id))
        try:
            report = WatcherReport.from_json(await _body(request))
        except TypeError as bad:
            raise _Problem(400, f"not a watcher report: {bad}") from bad
        try:
            notices = read_notices(report.notices)
        except ValueError as bad:
            raise _Problem(400, f"not a watcher report: {bad}") from bad
        told = replace(
            report,
            versions=_versions(report.versions),
            notices=notices,
            notices_complete=report.notices_complete is True,
        )
        self._s.nodes.heard(node_id, told)
        return web.json_response({})

    def _check_controller(self, request: web.Request) -> None:
        _check_bearer(request, self._s.secret.agent_token)

    def _check_complete(self) -> None:
        state = self._s.state()
        if not state.complete:
            raise _Problem(503, f"not ready for orders: {state.detail or 'gathering'}; ask again")


@web.middleware
async def _speak_of_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _Problem as problem:
        return _error(problem.status, str(problem))
    except OrderRefused as refused:
        return _error(409, str(refused))
    except (HeadAway, DriverLost) as away:
        return _error(503, str(away))
    except web.HTTPException as odd:
        return _error(odd.status, odd.reason)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (ValueError, LookupError, RecursionError) as bad:  # LookupError: unknown charset
        raise _Problem(400, "the body is not JSON") from bad
    if not isinstance(body, dict):
        raise _Problem(400, "the body is not a JSON object")
    return body


def _versions(told: object) -> dict[str, str]:
    if not isinstance(told, Mapping):
        raise _Problem(400, "`versions` is not a JSON object")
    return understood(told)


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(query.get(name, default))
    except ValueError as bad:
        raise _Problem(400, f"`{name}` is not a number") from bad
    if not -1.0 <= value < 1e9:
        raise _Problem(400, f"`{name}` is out of range")
    return value


def _check_bearer(request: web.Request, token: str) -> None:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not _same(shown, token):
        raise _Problem(401, "wrong or missing token")


def _same(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), wanted.encode())


def _is_text(value: object) -> bool:
    """Whether it is a string that can be encoded: JSON and headers can hold lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
