"""Whether a provider's answer is one: what is not is no knowledge, least of all an empty list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from elasticd.provider import Instance, InstanceState, Market, Offering

T = TypeVar("T", Instance, Offering)

MOST = 10_000
"""Parts of a list. More is no fleet of ours but a fault, and reading it would hold up everybody."""

_LARGEST = 2**63 - 1


class Malformed(ValueError):
    """An answer that is not what the contract promises."""


def instances_of(answer: Any) -> tuple[Instance, ...]:
    """Each machine once. Raises `Malformed`."""
    return _list_of(answer, _check_instance, lambda instance: instance.instance_id)


def offerings_of(answer: Any) -> tuple[Offering, ...]:
    """Each offering once. Raises `Malformed`."""
    return _list_of(answer, _check_offering, lambda offering: offering.id)


def launched(answer: Any, node_id: str) -> Instance:
    """The machine of this node. Raises `Malformed`."""
    _check_instance(answer)
    instance: Instance = answer
    if instance.node_id not in (None, node_id):
        raise Malformed(f"asked for node {node_id!r}, it gave the machine of {instance.node_id!r}")
    return instance


def text_of(answer: Any) -> str:
    """Raises `Malformed`."""
    if not isinstance(answer, str):
        raise Malformed(f"text is expected, not {_shown(answer)}")
    return answer


def _list_of(answer: Any, check: Callable[[Any], None], key: Callable[[T], str]) -> tuple[T, ...]:
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes):
        raise Malformed(f"a list is expected, not {_shown(answer)}")
    parts: list[T] = list(islice(answer, MOST + 1))
    if len(parts) > MOST:
        raise Malformed(f"more than {MOST} parts in one list: not believed")
    found: dict[str, T] = {}
    for part in parts:
        check(part)
        if found.setdefault(key(part), part) != part:
            raise Malformed(f"{key(part)!r} is listed twice, and differently")
    return tuple(found.values())


def _check_instance(part: Any) -> None:
    if not isinstance(part, Instance):
        raise Malformed(f"a machine is expected, not {_shown(part)}")
    _demand("instance_id", part.instance_id, isinstance(part.instance_id, str) and part.instance_id)
    for name in ("node_id", "ledger_id", "address"):
        value = getattr(part, name)
        _demand(name, value, value is None or isinstance(value, str))
    _demand("state", part.state, isinstance(part.state, InstanceState))
    _demand("launched_at", part.launched_at, part.launched_at is None or _number(part.launched_at))
    if part.offering is not None:
        _check_offering(part.offering)


def _check_offering(part: Any) -> None:
    if not isinstance(part, Offering):
        raise Malformed(f"an offering is expected, not {_shown(part)}")
    for name in ("pool", "zone", "machine_type", "gpu_kind", "currency"):
        _demand(name, getattr(part, name), isinstance(getattr(part, name), str))
    for name in ("gpu_count", "price_micros"):
        _demand(name, getattr(part, name), _count(getattr(part, name)))
    memory = part.gpu_memory_mib
    _demand("gpu_memory_mib", memory, memory is None or _count(memory))
    _demand("market", part.market, isinstance(part.market, Market))
    _demand("available", part.available, isinstance(part.available, bool))


def _demand(name: str, value: Any, holds: Any) -> None:
    if not holds:
        raise Malformed(f"{name}: {_shown(value)} is not what the contract promises")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _shown(value: Any) -> str:
    """Its kind, and what it is where that is short. An answer may hold anything."""
    if value is None or isinstance(value, int | float | str | bool):
        return repr(value)[:100]
    return type(value).__name__
