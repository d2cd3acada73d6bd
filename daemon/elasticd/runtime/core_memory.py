"""All that the core remembers, as plain JSON and back, so that a replay can begin in mid-life.

More than its rows: windows of demand, what was refused when, which answer is waited for. It fits
the very same core only. Values are walked as they are; nothing of theirs is called on the way in or
out, so what a stranger's file holds can do no more than be wrong. Kept are scalars, the standard
containers, and objects of the core's own classes; shared objects stay shared.

Tags: `t` tuple · `l` list · `s` set · `f` frozenset · `d` dict · `q` deque · `o` object ·
`e` enum · `m` method of an object · `x` float that JSON lacks · `r` seen before, by number.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from elasticd.core.decide import Core

_OURS = ("elasticd.core.", "elasticd.provider", "elasticd.routing_table")
_COLLECTIONS: dict[str, type] = {"t": tuple, "l": list, "s": set, "f": frozenset}
_TAGS = {kind: tag for tag, kind in _COLLECTIONS.items()}


class NotMemory(ValueError):
    """What cannot be kept, or is no memory of this core."""


def remembered(core: object) -> Any:
    """Everything that `core` holds. Raises `NotMemory`."""
    try:
        return _Writer().value(core)
    except (AttributeError, RecursionError) as unfit:
        raise NotMemory(f"the core is not as it should be: {unfit!r}") from unfit


def core_of(memory: Any) -> Core:
    """A core that goes on from there. Raises `NotMemory`."""
    try:
        core = _Reader().value(memory)
    except (LookupError, TypeError, ValueError, AttributeError, ImportError, RecursionError) as bad:
        raise NotMemory(f"no memory of a core: {bad!r}") from bad
    if not isinstance(core, Core):
        raise NotMemory("no memory of a core")
    return core


class _Writer:
    """Numbers what may change in the order in which it is met, so that it is written once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def value(self, value: Any) -> Any:
        """One value."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else ["x", repr(value)]
        if isinstance(value, enum.Enum):
            return ["e", _name(kind), value.value]
        if kind in (types.MethodType, types.BuiltinMethodType):
            return ["m", self.value(value.__self__), value.__name__]
        if _may_change(kind):
            if id(value) in self._numbers:
                return ["r", self._numbers[id(value)]]
            self._numbers[id(value)] = len(self._numbers)
        return self._parts(kind, value)

    def _parts(self, kind: type, value: Any) -> Any:
        if kind in _TAGS:
            return [_TAGS[kind], *map(self.value, value)]
        if kind is dict:
            return ["d", *([self.value(k), self.value(v)] for k, v in value.items())]
        if kind is deque:
            return ["q", value.maxlen, *map(self.value, value)]
        name = _name(kind)
        return ["o", name, {field: self.value(part) for field, part in _fields(value)}]


class _Reader:
    """Numbers in the same order."""

    def __init__(self) -> None:
        self._seen: list[Any] = []

    def value(self, told: Any) -> Any:
        """One value."""
        if not isinstance(told, list):
            return told
        tag, *parts = told
        if tag in ("r", "x", "e", "m"):
            return self._special(tag, parts)
        if tag in ("t", "f"):
            return _COLLECTIONS[tag](map(self.value, parts))
        if tag == "o":
            return self._object(*parts)
        made: Any = {"l": list, "s": set, "d": dict, "q": deque}[tag]()
        if tag == "q":
            made = deque(maxlen=parts.pop(0))
        self._seen.append(made)
        if tag == "d":
            made.update((self.value(key), self.value(part)) for key, part in parts)
        else:
            (made.update if tag == "s" else made.extend)(map(self.value, parts))
        return made

    def _special(self, tag: str, parts: list[Any]) -> Any:
        if tag == "r":
            return self._seen[parts[0]]
        if tag == "x":
            return float(parts[0])
        if tag == "e":
            kind = _class(parts[0])
            if not issubclass(kind, enum.Enum):
                raise NotMemory(f"{parts[0]} is no enum")
            return kind(parts[1])
        owner = self.value(parts[0])
        if type(owner) is not dict and not type(owner).__module__.startswith(_OURS):
            raise NotMemory(f"a method of {type(owner).__name__}")
        return getattr(owner, parts[1])

    def _object(self, name: str, fields: dict[str, Any]) -> Any:
        kind = _class(name)
        made: Any = object.__new__(kind)
        if _may_change(kind):
            self._seen.append(made)
        for field, part in fields.items():
            object.__setattr__(made, field, self.value(part))
        return made


def _may_change(kind: type) -> bool:
    """What is not a value: it matters whether two of them are one."""
    if kind in (tuple, frozenset):
        return False
    return not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    names = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())]
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    yield from getattr(value, "__dict__", {}).items()


def _name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    _class(name)
    return name


def _class(name: str) -> type:
    module, _, qualname = name.partition(":")
    if not module.startswith(_OURS):
        raise NotMemory(f"{name} is not the core's")
    found = getattr(importlib.import_module(module), qualname, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise NotMemory(f"{name} is no class of the core")
    return found
