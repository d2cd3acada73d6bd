"""What pydantic found, in words for people: one message for one mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from elasticd.nearest import choice
from elasticd.settings.document import Place, Problem, holds_secret
from elasticd.units import truth_value

_TEXT = "must be text (in quotes, if it looks like a number)"
_MAPPING = "must be a mapping of keys to values"
_MESSAGES = {
    "extra_forbidden": "unknown key",
    "missing": "is missing; give it",
    "string_type": _TEXT,
    "int_type": "must be a whole number, in decimal digits",
    "int_from_float": "must be a whole number, in decimal digits",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
    "too_short": ("min_length", "at least of length"),
    "too_long": ("max_length", "at most of length"),
}


def problems_of(bad: ValidationError, data: Any, under: Place = ()) -> Iterator[Problem]:
    """One problem for each place, in pydantic's order. `data` is what was validated."""
    found: dict[Place, list[str]] = {}
    for error in bad.errors(include_url=False):
        place = _place(error["loc"], data, missing=error["type"] == "missing")
        texts = found.setdefault(place, [])
        if (text := _message(error, place)) not in texts:
            texts.append(text)
    for place, texts in found.items():
        yield Problem((*under, *place), "; or ".join(texts))


def _place(loc: tuple[int | str, ...], data: Any, *, missing: bool) -> Place:
    """Pydantic's location without its own marks: `[key]`, members of a union."""
    place: Place = ()
    for position, part in enumerate(loc):
        if missing and position == len(loc) - 1:
            return (*place, part)
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            continue  # a mark of pydantic's, or it went on into a value that is no mapping
        place = (*place, part)
    return place


def _message(error: Any, place: Place) -> str:
    kind, given = str(error["type"]), error.get("input")
    context: Mapping[str, Any] = error.get("ctx") or {}
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if kind in ("missing", "extra_forbidden"):
        return _MESSAGES[kind]
    if kind in ("literal_error", "enum"):
        names = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        text = "" if isinstance(given, bool) else str(given)
        return f"unknown value{_given(given, place)}; {choice(text, names)}"
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        return f"must be {words} {context[limit]}{_but(given, place)}"
    text = _MESSAGES.get(kind) or str(error["msg"])
    if given is None:
        return f"has no value; it {text}"
    return f"{text}{_but(given, place)}"


def _given(given: Any, place: Place) -> str:
    """The value, if it is short and may be shown."""
    shown = isinstance(given, str | int | float) and not holds_secret(place)
    if shown and isinstance(given, bool):
        return f" {truth_value(given)}"
    return f" {given if not isinstance(given, str) else given[:60]!r}" if shown else ""


def _but(given: Any, place: Place) -> str:
    shown = _given(given, place)
    return f", not{shown}" if shown else ""
