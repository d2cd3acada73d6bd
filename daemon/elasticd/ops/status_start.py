"""What a fleet that comes up still waits for, read from its status: nothing wrong, not done either.

What is not known yet, in the first moments of a controller; and models whose first replicas load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.ops.text_table import clean

Thing = Mapping[str, Any]

STARTING = 60.0
"""Seconds in which a controller, its agent and its Ray head may be coming up together."""


def is_new(status: Thing) -> bool:
    """Whether the controller has just started: what it does not know yet is no news."""
    uptime = (status.get("controller") or {}).get("uptime")
    return uptime is not None and uptime < STARTING


def loads(status: Thing, model: Thing) -> bool:
    """Whether nothing but time is missing until the model's first replica is ready."""
    blocked = model.get("blocked") and not is_new(status)
    if model.get("failures") or blocked or short_since_loss(status, model):
        return False
    return bool(model.get("starting") or model.get("pending"))


def short_since_loss(status: Thing, model: Thing) -> str:
    """What it has lost and not got back yet, in words; empty: nothing."""
    name, wanted, ready = model["name"], model.get("wanted"), model.get("ready")
    if wanted is None or ready is None or ready >= wanted:
        return ""
    for departure in reversed(status.get("departures") or ()):
        gone = not departure.get("taken_back") and departure.get("whole_after") is None
        if gone and name in departure["models"]:
            return _left(status, departure)
    return clean(model.get("lost"))


def _left(status: Thing, departure: Thing) -> str:
    phases = {node["id"]: node["phase"] for node in status.get("nodes", ())}
    node_id = departure["node_id"]
    word = {"draining": "is going", "terminating": "is ending"}.get(
        phases.get(node_id, ""), "is gone"
    )
    return f"node {clean(node_id)} {word}: {clean(departure.get('why'))}"


def coming_up(status: Thing) -> Iterator[str]:
    """One sentence for each thing that is still waited for."""
    if is_new(status):
        yield from _unknown_yet(status)
    for model in status.get("models", ()):
        wanted = model.get("wanted")
        if wanted is None and is_new(status):
            yield f"model {model['name']}: how many replicas it needs is not decided yet"
        elif wanted and not model.get("ready") and loads(status, model):
            why = f": {clean(model['blocked'])}" if model.get("blocked") else ""
            yield f"model {model['name']}: its first replica is not ready yet{why}"


def _unknown_yet(status: Thing) -> Iterator[str]:
    if status.get("cluster_seen_age") is None:
        yield "the cluster agent has not reported yet"
    elif status.get("cluster_detail"):
        yield f"cluster: {clean(status['cluster_detail'])}"
    for pool in status.get("pools", ()):
        if pool.get("listed_age") is None:
            yield f"pool {pool['name']}: its machines have not been listed yet"
