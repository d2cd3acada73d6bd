"""The changing half of the admin API: what is asked is checked against the status, then told to
the loop as a fact. What becomes of it is in the next status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from elasticd.core.events import (
    DownRequested,
    DrainRequested,
    HoldReleased,
    ScaleHeld,
    UndrainRequested,
)
from elasticd.nearest import did_you_mean
from elasticd.ops.admin_http import Refused, asker, body_of, duration_of, json_answer, object_of
from elasticd.ops.admin_ports import AdminPorts, DrillRefused

USUAL_DRAIN = 120.0
"""Seconds for a drain that names no deadline."""

_MOST_REPLICAS = 100_000

_ENDING = ("terminating", "gone")


class Changing:
    """Each method answers one route."""

    def __init__(self, ports: AdminPorts) -> None:
        self._ports = ports

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        router.add_post("/api/v1/down", self.down)
        router.add_post("/api/v1/reload", self.reload)
        router.add_post("/api/v1/nodes/{node}/preempt", self.preempt)
        router.add_post("/api/v1/nodes/{node}/drain", self.drain)
        router.add_post("/api/v1/nodes/{node}/undrain", self.undrain)
        router.add_post("/api/v1/models/{model}/scale", self.scale)

    async def down(self, request: web.Request) -> web.Response:
        self._ports.emit(DownRequested(by=asker(await body_of(request))))
        return json_answer({"accepted": True}, 202)

    async def reload(self, request: web.Request) -> web.Response:
        return json_answer(await self._ports.reload(asker(await body_of(request))))

    async def preempt(self, request: web.Request) -> web.Response:
        notice = duration_of(await object_of(request), "notice")
        try:
            done = await self._ports.preempt(request.match_info["node"], notice)
        except DrillRefused as refused:
            raise Refused(refused.status, str(refused)) from refused
        return json_answer(done)

    async def drain(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        asked = duration_of(body, "seconds")
        seconds = USUAL_DRAIN if asked is None else asked
        node = self._node(request.match_info["node"])
        if node["phase"] in _ENDING:
            why = f": {node['reason']}" if node.get("reason") else ""
            raise Refused(409, f"node {node['id']} is {node['phase']} already{why}")
        if node["phase"] == "requested":
            raise Refused(
                409, f"node {node['id']} has no machine yet; drain it once the provider gave one"
            )
        self._ports.emit(DrainRequested(node["id"], seconds, asker(body)))
        return json_answer({"accepted": True, "node_id": node["id"], "seconds": seconds}, 202)

    async def undrain(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        node = self._node(request.match_info["node"])
        if node["phase"] != "draining":
            raise Refused(409, f"node {node['id']} is {node['phase']}, not draining")
        self._ports.emit(UndrainRequested(node["id"], asker(body)))
        return json_answer({"accepted": True, "node_id": node["id"]}, 202)

    async def scale(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        name, by = request.match_info["model"], asker(body)
        model = self._model(name)
        if "replicas" not in body:
            raise Refused(400, "replicas: a whole number, or null for the autoscaler, is expected")
        replicas, seconds = body["replicas"], duration_of(body, "seconds", zero=False)
        if replicas is None:
            if seconds is not None:
                raise Refused(400, "seconds: giving a model back takes no time; leave it out")
            self._ports.emit(HoldReleased(name, by))
        else:
            _check_count(model, replicas)
            self._ports.emit(ScaleHeld(name, replicas, seconds, by))
        answer = {"accepted": True, "model": name, "replicas": replicas, "seconds": seconds}
        return json_answer(answer, 202)

    def _fleet(self) -> Mapping[str, Any]:
        status = self._ports.status()
        if status.get("down"):
            raise Refused(
                409, "everything is being given back; start elasticd again, then ask again"
            )
        return status

    def _node(self, word: str) -> Mapping[str, Any]:
        """By its id, or the beginning of it where only one node that lives begins so."""
        nodes: list[Mapping[str, Any]] = self._fleet().get("nodes", [])
        for node in nodes:
            if node["id"] == word:
                return node
        living = [node for node in nodes if node["phase"] not in _ENDING]
        found = [node for node in living if word and node["id"].startswith(word)]
        if len(found) > 1:
            raise Refused(400, f"{word!r} may be any of {_few(found)}; give more of the id")
        if found:
            return found[0]
        hint = did_you_mean(word, (node["id"] for node in living))
        raise Refused(404, f"no node {word!r}{hint or _list(living)}")

    def _model(self, name: str) -> Mapping[str, Any]:
        models: list[Mapping[str, Any]] = self._fleet().get("models", [])
        for model in models:
            if model["name"] == name:
                return model
        known = [str(model["name"]) for model in models]
        hint = did_you_mean(name, known)
        raise Refused(404, f"no model {name!r}{hint or '; models: ' + ', '.join(known)}")


def _check_count(model: Mapping[str, Any], replicas: Any) -> None:
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise Refused(400, "replicas: a whole number from 0, or null, is expected")
    if replicas > _MOST_REPLICAS:
        raise Refused(400, f"replicas: at most {_MOST_REPLICAS} is expected")
    most = model.get("max_replicas")
    if most is not None and replicas > most:
        raise Refused(
            400,
            f"model {model['name']}: {replicas} replicas are more than its max_replicas {most}; "
            "raise scaling.max_replicas in the configuration, then `elasticd reload`",
        )


def _few(nodes: Iterable[Mapping[str, Any]], most: int = 5) -> str:
    names = [str(node["id"]) for node in nodes]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _list(nodes: list[Mapping[str, Any]]) -> str:
    return f"; nodes there are: {_few(nodes)}" if nodes else "; there are no nodes"
