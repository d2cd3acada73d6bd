"""Values of the core as plain JSON and back, for the ledger's rows and the journal.

Works on the dataclasses' own annotations: nested frozen dataclasses, tuples, enums, optionals.
NaN and infinity are refused on the way out, so nothing that cannot be read again is written.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from elasticd.core import actions, events

T = TypeVar("T")

_KINDS: dict[str, type] = {
    t.__name__: t for t in (*typing.get_args(events.Event), *typing.get_args(actions.Action))
}
_HINTS: dict[type, dict[str, Any]] = {}


def to_json(value: Any) -> dict[str, Any]:
    """An event or action as JSON, tagged with its `type`."""
    return {"type": type(value).__name__, **encode(value)}


def from_json(data: Mapping[str, Any]) -> Any:
    """The inverse of `to_json`. Raises `ValueError` for a type this version does not know."""
    kind = _KINDS.get(str(data.get("type")))
    if kind is None:
        raise ValueError(f"unknown type {data.get('type')!r}")
    return decode(kind, {k: v for k, v in data.items() if k != "type"})


def encode(value: Any) -> Any:
    """Plain JSON of one value. Raises `ValueError` for NaN, infinity and foreign types."""
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be recorded")
        return value
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if dataclasses.is_dataclass(value):
        # What a value makes of its own fields is made again when it is read.
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    raise ValueError(f"{type(value).__name__} cannot be recorded")


def decode(kind: type[T], data: Any) -> T:
    """Reads what `encode` wrote as a value of `kind`; missing fields take their defaults."""
    return typing.cast(T, _decode(kind, data))


def _decode(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        return _decode(next(a for a in typing.get_args(kind) if a is not type(None)), data)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    return float(data) if kind is float else data


def _decode_tuple(parts: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(_decode(parts[0], v) for v in data)
    return tuple(_decode(p, v) for p, v in zip(parts, data, strict=True))


def _decode_dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = typing.get_type_hints(kind)
    return kind(**{k: _decode(hints[k], v) for k, v in data.items() if k in hints})
