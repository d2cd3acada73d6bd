"""Whether an answer of the admin API is one: commands say what they are told, not what they guess.

What an older or a newer daemon tells more or less of is fine, as long as what is there is of the
kind it must be and what names a thing is there. Anything else is not read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Check = Callable[[Any, str], Iterator[str]]
"""Sentences about a value and the path to it; none: it is as it must be."""


def object_of(
    must: Mapping[str, Check],
    may: Mapping[str, Check] | None = None,
    some: Mapping[str, Check] | None = None,
) -> Check:
    """An object with these keys. What it `may` have can also be null, which is unknown; of what it
    has `some`, lists and the like, it can have none, and null says nothing. Others are not looked
    at."""

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path or 'it'} is no object"
            return
        for key, of in must.items():
            if key not in value:
                yield f"{path}.{key} is missing".lstrip(".")
            else:
                yield from of(value[key], f"{path}.{key}".lstrip("."))
        for key, of in (may or {}).items():
            if value.get(key) is not None:
                yield from of(value[key], f"{path}.{key}".lstrip("."))
        for key, of in (some or {}).items():
            if key in value:
                yield from of(value[key], f"{path}.{key}".lstrip("."))

    return check


def list_of(each: Check) -> Check:
    """A list of such."""

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for number, item in enumerate(value):
            yield from each(item, f"{path}[{number}]")

    return check


def dict_of(each: Check) -> Check:
    """An object whose keys are names of such."""

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path} is no object"
            return
        for key, item in value.items():
            yield from each(item, f"{path}.{key}")

    return check


def either(first: Check, second: Check) -> Check:
    """One of two."""

    def check(value: Any, path: str) -> Iterator[str]:
        if next(first(value, path), None) is not None:
            yield from second(value, path)

    return check


def text(value: Any, path: str) -> Iterator[str]:
    """A string."""
    if not isinstance(value, str):
        yield f"{path} is no text"


def number(value: Any, path: str) -> Iterator[str]:
    """A number that ages and amounts can be made of."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not -1e18 < value < 1e18:
        yield f"{path} is no number"


def whole(value: Any, path: str) -> Iterator[str]:
    """A whole number."""
    if type(value) is not int:
        yield f"{path} is no whole number"


def flag(value: Any, path: str) -> Iterator[str]:
    """Yes or no."""
    if not isinstance(value, bool):
        yield f"{path} is neither true nor false"


def keys(kind: Check, names: str) -> dict[str, Check]:
    """Several keys of one kind."""
    return dict.fromkeys(names.split(), kind)


_TEXTS = list_of(text)

_MODEL = object_of(
    keys(text, "name"),
    {
        **keys(whole, "wanted ready starting pending draining queued in_flight failures outdated"),
        **keys(whole, "min_replicas max_replicas"),
        **keys(number, "demand_age"),
        **keys(text, "blocked last_cause unresolved"),
        "failed": flag,
        "hold": object_of({"replicas": whole}, {"seconds_left": number, "by": text}),
    },
    keys(_TEXTS, "reasons last_tail pools"),
)
_NODE = object_of(
    keys(text, "id phase pool"),
    {
        **keys(number, "age since phase_age ended_age last_seen_age usual seconds_left dead_for"),
        **keys(whole, "gpus gpus_used price_micros"),
        **keys(text, "gpu_kind market currency reason trouble boot instance_id hint"),
    },
    keys(_TEXTS, "held log_tail"),
)
_REPLICA = object_of(
    keys(text, "id model phase"),
    {
        **keys(number, "age since phase_age ended_age last_seen_age usual"),
        **keys(text, "node_id load_phase cause"),
    },
)
_MACHINE = object_of(
    keys(text, "instance_id"),
    {
        **keys(number, "age seconds_left"),
        **keys(whole, "price_micros"),
        **keys(text, "node_id ledger_id offering currency"),
    },
)
_POOL = object_of(
    keys(text, "name"),
    {
        **keys(number, "listed_age"),
        **keys(text, "last_error blocked unsettled"),
    },
    {
        **keys(_TEXTS, "stuck adopted"),
        "troubles": list_of(
            object_of(keys(text, "kind"), {**keys(number, "age seconds_left"), "text": text})
        ),
        # An older controller told ids alone.
        "orphans": list_of(either(text, _MACHINE)),
        "foreign_machines": list_of(_MACHINE),
    },
)
_SHARE = object_of({}, {**keys(whole, "per_hour today"), "currency": text})
_SPEND = object_of(
    {},
    {
        **keys(whole, "per_hour today max_per_hour max_per_day"),
        **keys(number, "day_ends_in"),
        **keys(text, "currency blocked"),
    },
    {"unrated": _TEXTS, **keys(dict_of(_SHARE), "pools models")},
)
_DEPARTURE = object_of(
    {"node_id": text, "age": number, "models": _TEXTS},
    {
        **keys(number, "notice ended_after whole_after"),
        **keys(whole, "finished continued restarted lost"),
        **keys(text, "why"),
        **keys(flag, "taken_back partial"),
    },
)
_RELOAD = object_of(
    {},
    {
        **keys(number, "at_age running_for"),
        **keys(text, "problem"),
        **keys(whole, "number"),
    },
    keys(_TEXTS, "changed needs_restart warnings"),
)
_CONTROLLER = object_of(
    {},
    {
        **keys(text, "problem ledger_error version"),
        **keys(whole, "pid"),
        **keys(number, "uptime"),
        "reload": _RELOAD,
        "ledger": object_of(
            {}, {"copy_age": number, "copy_error": text, "path": text}, {"told": _TEXTS}
        ),
    },
)
STATUS = object_of(
    {"models": list_of(_MODEL), "nodes": list_of(_NODE), "pools": list_of(_POOL)},
    {
        **keys(number, "at cluster_seen_age"),
        **keys(text, "cluster ledger_id cluster_detail"),
        "down": either(object_of({"left": whole}), flag),
        "spend": _SPEND,
        "controller": _CONTROLLER,
        "observe_only": object_of(
            {}, {**keys(text, "text fault message do below"), "times": whole, "age": number}
        ),
    },
    {
        "replicas": list_of(_REPLICA),
        "departures": list_of(_DEPARTURE),
        "unmanaged": list_of(object_of(keys(text, "node_id pool"))),
        "recent": list_of(object_of({}, {"at": number, **keys(text, "subject text")})),
    },
)
"""What every command may be told of the fleet."""

_PART = object_of(keys(text, "subject text"))
EVENTS = object_of(
    {
        "entries": list_of(
            object_of({"at": number}, some={"facts": list_of(_PART), "lines": list_of(_PART)})
        ),
        "next_seq": whole,
    },
    {"more": flag},
)
RELOADED = object_of({"problem": text}, some=keys(_TEXTS, "changed needs_restart warnings"))
ACCEPTED = object_of({"accepted": flag}, {"node_id": text, "recorded": flag})
TAKEN = object_of({"node_id": text}, {"notice": number, "already": flag})
