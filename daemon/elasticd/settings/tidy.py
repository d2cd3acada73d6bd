"""Keys that nobody knows: each is told once, and read as what was probably meant.

A typo in a key is one mistake. So that it is not told a second time as a missing key, or as a pool
that nobody named, its value is taken over under the nearest known name, and a key at the wrong
indent is moved to where it belongs. The configuration is refused all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from elasticd.nearest import likeness
from elasticd.settings.document import Document, Place, Problem
from elasticd.settings.keys import Keys, homes, is_list, keys_of, section_in, takes_null
from elasticd.settings.model import NodePool, Settings

_MEANT = 0.7
"""From here on a value is read under the name that was probably meant."""
_LIKELY = 0.65

_RETRIES = ("retries", "retry")
"""What people look for, and what the gateway decides by itself."""

OwnKeys = Callable[[Any], Keys | None]
"""The keys of a provider, by its name; `None`: the provider is not known, nor are its keys."""


@dataclass(slots=True)
class Tidied:
    """The data with every key known. `guessed`: places whose value stood elsewhere."""

    data: Any
    lines: dict[Place, int]
    problems: list[Problem] = field(default_factory=list)
    guessed: set[Place] = field(default_factory=set)


def tidy(document: Document, own_keys: OwnKeys) -> Tidied:
    """Never changes the document."""
    tidied = Tidied(copy.deepcopy(document.data), dict(document.lines))
    if tidied.data is None:
        tidied.data = {}
    if isinstance(tidied.data, dict):
        _Tidier(tidied, own_keys).section(tidied.data, (), Settings)
    return tidied


class _Tidier:
    def __init__(self, tidied: Tidied, own_keys: OwnKeys) -> None:
        self._out = tidied
        self._own_keys = own_keys

    def section(self, raw: dict[str, Any], at: Place, section: type[BaseModel]) -> None:
        keys = keys_of(section)
        judged = True
        if section is NodePool:
            own = self._own_keys(_provider(raw))
            keys, judged = {**keys, **(own or {})}, own is not None
        self._lift(raw, at, keys)
        for key in [key for key in raw if key not in keys]:
            self._unknown(raw, at, key, keys, judged)
        for key, info in keys.items():
            child = section_in(info)
            if key in raw and child:
                self._child(
                    raw, (*at, key), child, as_list=is_list(info), nullable=takes_null(info)
                )

    def _child(
        self,
        raw: dict[str, Any],
        at: Place,
        child: type[BaseModel],
        *,
        as_list: bool,
        nullable: bool,
    ) -> None:
        value = raw[str(at[-1])]
        if value is None and not nullable:
            # `scaling:` with every key under it commented out.
            raw[str(at[-1])] = [] if as_list else {}
        elif isinstance(value, dict) and not as_list:
            self.section(value, at, child)
        elif isinstance(value, list) and as_list:
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    self.section(item, (*at, index), child)

    def _lift(self, raw: dict[str, Any], at: Place, keys: Keys) -> None:
        """Keys that stand one level too deep."""
        for name, info in keys.items():
            child, inner = section_in(info), raw.get(name)
            if child is None or is_list(info) or not isinstance(inner, dict):
                continue
            known = keys_of(child)
            for key in [key for key in inner if key not in known and key in keys]:
                place = (*at, name, key)
                here = _pattern(at) or "the top of the file"
                self._tell(place, f"unknown key here; it belongs under {here}, one level up")
                self._move(inner, key, place, raw, (*at, key))

    def _unknown(self, raw: dict[str, Any], at: Place, key: str, keys: Keys, judged: bool) -> None:
        here = _pattern(at)
        score, name = _best(key, keys)
        other, elsewhere = _best_home(key, here)
        if not judged and max(score, other) < _MEANT:
            return  # only the provider could tell, and there is none
        place = (*at, key)
        allowed = f"allowed here: {', '.join(keys)}"
        if any(word in key.lower() for word in _RETRIES):
            self._tell(place, f"how requests are tried again is no setting; remove it; {allowed}")
        elif other >= _LIKELY and other > score:
            sections = _or(section or "the top of the file" for section, _ in elsewhere)
            meant = elsewhere[0][1]
            which = "it belongs" if meant == key else f"{meant} belongs"
            self._tell(place, f"unknown key here; {which} under {sections}; {allowed}")
            self._sink(raw, at, key, meant, keys)
        elif score >= _LIKELY:
            self._tell(place, f"unknown key; did you mean {name}? {allowed}")
            if score >= _MEANT:
                self._move(raw, key, place, raw, (*at, name))
        else:
            self._tell(place, f"unknown key; {allowed}")
        raw.pop(key, None)

    def _sink(self, raw: dict[str, Any], at: Place, key: str, meant: str, keys: Keys) -> None:
        """Into the one section under this one that knows the key."""
        below = [
            name
            for name, info in keys.items()
            if not is_list(info) and (child := section_in(info)) and meant in keys_of(child)
        ]
        inner = raw.get(below[0]) or {} if len(below) == 1 else None
        if isinstance(inner, dict):
            raw[below[0]] = inner
            self._move(raw, key, (*at, key), inner, (*at, below[0], meant))

    def _move(
        self, source: dict[str, Any], key: str, old: Place, target: dict[str, Any], new: Place
    ) -> None:
        value = source.pop(key)
        if new[-1] in target:
            return
        target[str(new[-1])] = value
        self._out.guessed.add(new)
        for place, line in list(self._out.lines.items()):
            if place[: len(old)] == old:
                self._out.lines[(*new, *place[len(old) :])] = line

    def _tell(self, place: Place, message: str) -> None:
        self._out.problems.append(Problem(place, message))


def _provider(raw: Mapping[str, Any]) -> Any:
    """A pool's provider, also where its key has a typo."""
    if "provider" in raw:
        return raw["provider"]
    return next(
        (raw[key] for key in raw if _best(key, NodePool.model_fields)[1] == "provider"), None
    )


def _best(key: str, keys: Keys) -> tuple[float, str]:
    return max(((likeness(key, name), name) for name in keys), default=(0.0, ""))


def _best_home(key: str, here: str) -> tuple[float, list[tuple[str, str]]]:
    """How like the key is to the most similar ones of other sections, and `(section, key)`."""
    found = [(likeness(key, name), (section, name)) for name, section in homes() if section != here]
    best = max(score for score, _ in found)
    return best, [home for score, home in found if score == best]


def _pattern(at: Place) -> str:
    """Every section of a kind alike: `models[].scaling`."""
    text = ""
    for part in at:
        text += "[]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _or(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"
