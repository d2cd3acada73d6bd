"""A status as the admin API answers it, for tests of what is made of it."""

from __future__ import annotations

import copy
from typing import Any

_STATUS: dict[str, Any] = {
    "at": 1000.0,
    "cluster": "local",
    "ledger_id": "k3f9",
    "epoch": 4,
    "down": None,
    "controller": {"problem": "", "ledger_error": ""},
    "cluster_seen_age": 0.4,
    "cluster_complete": True,
    "cluster_detail": "",
    "models": [
        {
            "name": "tiny",
            "wanted": 2,
            "ready": 1,
            "starting": 1,
            "pending": 0,
            "draining": 0,
            "queued": 7,
            "in_flight": 8,
            "demand_age": 0.5,
            "reasons": ["demand wants 3", "max_replicas 2"],
            "blocked": "",
        }
    ],
    "nodes": [
        {
            "id": "k3f9-4-1",
            "pool": "here",
            "phase": "ready",
            "since": 400.0,
            "age": 700.0,
            "gpus": 1,
            "gpus_used": 1,
            "gpu_kind": "declared",
            "market": "on_demand",
            "price_micros": 250_000,
            "currency": "USD",
            "zone": "here",
            "instance_id": "i-1",
            "address": "127.0.0.1",
            "reason": "",
            "boot": "up",
            "seconds_left": None,
        },
        {
            "id": "k3f9-4-2",
            "pool": "here",
            "phase": "booting",
            "since": 990.0,
            "age": 10.0,
            "gpus": 1,
            "gpus_used": 0,
            "gpu_kind": "declared",
            "market": "spot",
            "price_micros": None,
            "currency": "",
            "zone": "here",
            "instance_id": "i-2",
            "address": "127.0.0.1",
            "reason": "",
            "boot": "starting ray",
            "seconds_left": None,
        },
    ],
    "replicas": [
        {
            "id": "k3f9-4-3",
            "incarnation": 1,
            "model": "tiny",
            "node_id": "k3f9-4-1",
            "phase": "ready",
            "since": 500.0,
            "load_phase": "",
            "url": "http://127.0.0.1:20001",
            "gpus": 1,
            "cause": "",
        },
        {
            "id": "k3f9-4-4",
            "incarnation": 1,
            "model": "tiny",
            "node_id": "k3f9-4-2",
            "phase": "starting",
            "since": 988.0,
            "load_phase": "loading weights",
            "url": "",
            "gpus": 1,
            "cause": "",
        },
    ],
    "departures": [
        {
            "node_id": "k3f9-4-0",
            "age": 300.0,
            "why": "interruption notice, 30 s left",
            "models": ["tiny"],
            "notice": 30.0,
            "taken_back": False,
            "ended_after": 28.0,
            "whole_after": 74.0,
            "finished": 3,
            "continued": 41,
            "restarted": 2,
            "lost": 0,
        }
    ],
    "pools": [{"name": "here", "listed_age": 1.0, "last_error": "", "blocked": "", "foreign": 0}],
    "recent": [{"at": 988.0, "subject": "model:tiny", "text": "one more replica: 15 requests"}],
}


def sample_status(**changes: Any) -> dict[str, Any]:
    """A fleet that grows, with some of its top keys changed."""
    return {**copy.deepcopy(_STATUS), **changes}
