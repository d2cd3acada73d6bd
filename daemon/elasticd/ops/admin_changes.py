"""The changing half of the admin API: what is asked is checked against the status, then told to
the loop as a fact. What becomes of it is in the next status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from elasticd.core.events import (
    AdoptRequested,
    DownRequested,
    DrainRequested,
    Event,
    HoldReleased,
    ScaleHeld,
    UndrainRequested,
)
from elasticd.nearest import did_you_mean
from elasticd.ops.admin_http import (
    OnlyObserved,
    Refused,
    asker,
    body_of,
    duration_of,
    json_answer,
    object_of,
)
from elasticd.ops.admin_ports import AdminPorts, DrillRefused
from elasticd.ops.status_pools import foreign_machines

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
        router.add_post("/api/v1/adopt", self.adopt)
        router.add_post("/api/v1/nodes/{node}/preempt", self.preempt)
        router.add_post("/api/v1/nodes/{node}/drain", self.drain)
        router.add_post("/api/v1/nodes/{node}/undrain", self.undrain)
        router.add_post("/api/v1/models/{model}/scale", self.scale)

    async def down(self, request: web.Request) -> web.Response:
        return await self._accept(DownRequested(by=asker(await body_of(request))))

    async def reload(self, request: web.Request) -> web.Response:
        return json_answer(await self._ports.reload(asker(await body_of(request))))

    async def adopt(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        ledger_id = body.get("ledger_id")
        if not isinstance(ledger_id, str) or not ledger_id:
            raise Refused(400, "ledger_id: the id of the ledger that left machines is expected")
        status = self._fleet()
        machines = [m for m in foreign_machines(status) if m.get("ledger_id") == ledger_id]
        if not machines:
            raise Refused(*_nothing_of(ledger_id, status))
        ids = [machine["instance_id"] for machine in machines]
        return await self._accept(
            AdoptRequested(ledger_id, asker(body)), ledger_id=ledger_id, machines=ids
        )

    async def preempt(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        node, notice, by = request.match_info["node"], duration_of(body, "notice"), asker(body)
        try:
            done = await self._ports.preempt(node, notice, by)
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
        left = node.get("seconds_left")
        told = seconds if left is None else min(seconds, left)  # the earlier end holds
        return await self._accept(
            DrainRequested(node["id"], seconds, asker(body)), node_id=node["id"], seconds=told
        )

    async def undrain(self, request: web.Request) -> web.Response:
        body = await object_of(request)
        node = self._node(request.match_info["node"])
        if node["phase"] != "draining":
            raise Refused(409, f"node {node['id']} is {node['phase']}, not draining")
        if not node.get("drain_asked", True):
            why = node.get("reason") or "for a reason of its own"
            raise Refused(
                409, f"nobody asked for the drain of node {node['id']}: {why}; that holds"
            )
        return await self._accept(UndrainRequested(node["id"], asker(body)), node_id=node["id"])

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
            return await self._accept(
                HoldReleased(name, by), model=name, replicas=None, seconds=None
            )
        _check_count(model, replicas)
        held = ScaleHeld(name, replicas, seconds, by)
        return await self._accept(held, model=name, replicas=replicas, seconds=seconds)

    async def _accept(self, event: Event, **told: Any) -> web.Response:
        """Answers when a restart would still know of it; `recorded` is false where the ledger
        cannot be written: then it is done all the same, for as long as this controller lives."""
        self._ports.emit(event)
        recorded = await self._ports.recorded()
        return json_answer({"accepted": True, "recorded": recorded, **told}, 202)

    def _fleet(self) -> Mapping[str, Any]:
        status = self._ports.status()
        if told := status.get("observe_only"):
            raise OnlyObserved(f"{told['text']}; {told['do']}")
        if status.get("down"):
            raise Refused(
                409,
                "everything is being given back, or has been: `elasticd run` serves again, and so "
                "does a controller that is started with --serve; then ask again",
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


def _nothing_of(ledger_id: str, status: Mapping[str, Any]) -> tuple[int, str]:
    """Why there is nothing to adopt."""
    if any(ledger_id in (pool.get("adopted") or ()) for pool in status.get("pools", ())):
        return 409, f"ledger {ledger_id} has been adopted already"
    known = sorted({str(machine.get("ledger_id")) for machine in foreign_machines(status)})
    hint = did_you_mean(ledger_id, known)
    there = f"; ledgers with machines here: {', '.join(known)}" if known else ""
    return 404, f"no machine of ledger {ledger_id!r} is listed{hint or there}"


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
