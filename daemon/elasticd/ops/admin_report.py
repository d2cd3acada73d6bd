"""Reads the gateway's report: what it counts and what broke, as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.core.events import (
    DemandSampled,
    EndpointBroken,
    Event,
    LoadSampled,
    ReplicaLoad,
    RequestsMoved,
)
from elasticd.ops.metrics import REQUESTS

REPORT_VERSION = 1


def events_of_report(report: Any) -> list[Event]:
    """Raises `ValueError` on what is not a report. Unknown keys are ignored, missing lists too.

    A list of loads that is missing is no list of no loads: nothing is said of them then.
    """
    if not isinstance(report, Mapping) or report.get("v") != REPORT_VERSION:
        raise ValueError(f"not a gateway report of version {REPORT_VERSION}")
    events: list[Event] = [
        DemandSampled(
            model=_text(m, "model"),
            queued=_count(m, "queued"),
            in_flight=_count(m, "in_flight"),
            peak=_count(m, "peak"),
            arrivals=_count(m, "arrivals"),
        )
        for m in _objects(report, "models")
    ]
    if "loads" in report:
        loads = (
            ReplicaLoad(_text(e, "replica_id"), _count(e, "in_flight"))
            for e in _objects(report, "loads")
        )
        events.append(LoadSampled(tuple(loads)))
    events.extend(
        RequestsMoved(
            _text(r, "replica_id"),
            finished=_count(r, "finished"),
            continued=_count(r, "continued"),
            restarted=_count(r, "restarted"),
            lost=_count(r, "lost"),
        )
        for r in _objects(report, "moved")
    )
    events.extend(
        EndpointBroken(_text(b, "replica_id"), _count(b, "incarnation"), _text(b, "message"))
        for b in _objects(report, "broken")
    )
    return events


def totals_of_report(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What became of the requests of each model, for metrics. Raises `ValueError`."""
    return [
        {"model": _text(t, "model"), **{name: _count(t, name) for name in REQUESTS if name in t}}
        for t in _objects(report, "totals")
    ]


def _objects(report: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = report.get(key, [])
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise ValueError(f"{key}: a list of objects is expected")
    return value


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    if isinstance(value, str):
        return value
    raise ValueError(f"{key}: text is expected, not {value!r}")


def _count(part: Mapping[str, Any], key: str) -> int:
    value = part.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key}: a whole number from 0 is expected, not {value!r}")
    return value
