"""Settings out of a file that has mistakes, so that the rest of it can be judged too.

What is wrong is told and put aside: a default takes its place, or a stand-in where there is none.
Whatever a later check says about such a place is not told, because it would speak of the stand-in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elasticd.settings.document import Place, Problem
from elasticd.settings.messages import problems_of
from elasticd.settings.model import Settings

_STAND_INS: Mapping[str, Any] = {
    "cluster": "unknown",
    "node_pools": [],
    "models": [],
    "provider": "unknown",
    "max_nodes": 1,
    "source": "demo:tiny",
    "command": ["{port}"],
    "hash": "sha256:" + "0" * 64,
}
_ROUNDS = 6
"""A section that is put aside lacks its required keys, a list its entries, and so on."""


@dataclass(frozen=True, slots=True)
class Settled:
    """`settings` is `None` only if the file is no mapping. `broken`: what is not as written."""

    settings: Settings | None
    problems: tuple[Problem, ...]
    broken: frozenset[Place]


def settle(data: Any, base: Path) -> Settled:
    """Validates, puts aside what is wrong, and validates the rest."""
    if not isinstance(data, dict):
        told = "must be a mapping of keys to values, such as `cluster: NAME`"
        return Settled(None, (Problem((), told),), frozenset({()}))
    data = copy.deepcopy(data)
    problems: list[Problem] = []
    broken: set[Place] = set()
    for _ in range(_ROUNDS):
        try:
            settings = Settings.model_validate(data, context={"base": base})
        except ValidationError as bad:
            found = [*problems_of(bad, data)]
            problems += [p for p in found if not touches(p.place, broken)]
            for problem in found:
                broken.add(_put_aside(data, problem.place))
        else:
            return Settled(settings, tuple(problems), frozenset(broken))
    return Settled(None, tuple(problems), frozenset(broken))


def touches(place: Place, others: Iterable[Place]) -> bool:
    """Whether a place is, holds, or stands in one of the others."""
    return any(place[: len(o)] == o[: len(place)] for o in others)


def _put_aside(data: Any, place: Place) -> Place:
    """Replaces what stands at a place; returns the place that is now not as written."""
    *outer, last = place
    try:
        holder = _holder(data, outer)
    except (KeyError, IndexError, TypeError):
        return place  # what it stood in has been put aside already
    if isinstance(last, int):
        if outer in (["models"], ["node_pools"]):
            holder[last] = {}
            return place
        return _put_aside(data, tuple(outer))  # a short list, without its wrong entry
    if last in holder:
        del holder[last]
    elif last == "name":
        holder[last] = "unknown-" + "-".join(str(part) for part in outer if isinstance(part, int))
    else:
        holder[last] = copy.deepcopy(_STAND_INS.get(last))
    return place


def _holder(data: Any, outer: list[str | int]) -> Any:
    for part in outer:
        data = data[part]
    return data
