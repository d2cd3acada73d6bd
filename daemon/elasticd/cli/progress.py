"""What `elasticd run` tells while it works: one line for each thing that changed.

Pure but for the printing: a status in, the lines that are new out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.journal_recovery import STARTING
from elasticd.ops.text_table import clean

_LOST = "gone"


def describe(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A key and a sentence for each thing worth telling; equal sentences are no news."""
    if told := status.get("observe_only"):
        what = f"{clean(told.get('fault'))}, {told.get('times')} times"
        yield "observe", f"THE CONTROLLER ONLY OBSERVES ({what}): {clean(told.get('do'))}"
    for node in status.get("nodes", ()):
        where = f"node {node['id']} (pool {node['pool']})"
        phase = {
            "requested": "renting a machine",
            "booting": "booting" + (f": {node['boot']}" if node.get("boot") else ""),
            "ready": "is up",
            "draining": "draining",
            "terminating": "giving the machine back",
            _LOST: "is gone",
        }.get(node["phase"], node["phase"])
        why = f" ({node['reason']})" if _is_leaving(node) and node.get("reason") else ""
        yield f"node:{node['id']}", f"{where}: {phase}{why}"
    for replica in status.get("replicas", ()):
        yield f"replica:{replica['id']}", _replica(replica)
    for pool in status.get("pools", ()):
        if pool.get("last_error"):
            yield f"pool:{pool['name']}", f"pool {pool['name']}: {pool['last_error']}"
    for model in status.get("models", ()):
        if model.get("blocked") and not _only_starting(status, model["blocked"]):
            yield f"blocked:{model['name']}", f"model {model['name']}: {model['blocked']}"
        if model.get("failed"):
            yield f"failed:{model['name']}", _failed(model)


def _only_starting(status: Mapping[str, Any], blocked: str) -> bool:
    """Processes that start together are not all up at once."""
    uptime = (status.get("controller") or {}).get("uptime")
    return uptime is not None and uptime < STARTING and "agent does not answer" in blocked


def _is_leaving(node: Mapping[str, Any]) -> bool:
    return node["phase"] in ("draining", "terminating", _LOST)


def _failed(model: Mapping[str, Any]) -> str:
    """With the engine's last words: this is where most first starts end."""
    tail = "".join(f"\n    | {clean(line)}" for line in model.get("last_tail") or ())
    cause = clean(model.get("last_cause")) or "the cause is not known"
    return f"model {model['name']} has failed, nothing more is tried: {cause}{tail}"


def _replica(replica: Mapping[str, Any]) -> str:
    who = f"replica {replica['id']} of {replica['model']}"
    phase = replica["phase"]
    if phase == "pending":
        return f"{who}: waits for a node"
    if phase == "starting":
        load = replica.get("load_phase") or "starting"
        return f"{who}: engine: {load}"
    if phase == "ready":
        return f"{who}: ready on {replica['node_id']}"
    cause = f" ({replica['cause']})" if replica.get("cause") else ""
    return f"{who}: {phase}{cause}"


def _usually(thing: Mapping[str, Any]) -> str:
    usual = thing.get("usual")
    return f", usually ~{age(usual)} in all" if usual else ""


class Progress:
    """Remembers what was told. `serving` becomes true with the first ready replica, for good."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self.serving = False

    def news(self, status: Mapping[str, Any]) -> list[str]:
        """The sentences that are new since the last status."""
        now = dict(describe(status))
        fresh = [text for key, text in now.items() if self._told.get(key) != text]
        # The daemon forgets nodes that ended; said here if nothing said it before.
        fresh += [
            f"node {key.removeprefix('node:')}: is gone"
            for key, text in self._told.items()
            if key.startswith("node:") and key not in now and ": is gone" not in text
        ]
        self._told = now
        if any(model.get("ready", 0) > 0 for model in status.get("models", ())):
            self.serving = True
        return fresh

    @staticmethod
    def waiting_for(status: Mapping[str, Any]) -> str:
        """What the first replica waits for, in a few words."""
        for replica in status.get("replicas", ()):
            if replica["phase"] == "starting":
                doing = replica.get("load_phase") or "starting"
                return f"engine of {replica['model']}: {doing}{_usually(replica)}"
        for node in status.get("nodes", ()):
            if node["phase"] in ("requested", "booting"):
                return f"node {node['id']}: {node.get('boot') or node['phase']}{_usually(node)}"
        for model in status.get("models", ()):
            if model.get("blocked"):
                return f"model {model['name']}: {model['blocked']}"
        return "the controller's first decisions"
