"""Values in what a replica says. Whatever is not as engines have it is a `ValueError`."""

from __future__ import annotations

from typing import Any


def ids_of(value: object, below: int) -> list[int]:
    """Token ids, each less than `below`; nothing is none."""
    if value is None:
        return []
    # A comparison of types: true would be an id else.
    if isinstance(value, list) and all(type(i) is int and 0 <= i < below for i in value):
        return value
    raise ValueError("what it calls token ids are none")


def text_of(value: object) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise ValueError(f"a {type(value).__name__} in the place of a text")


def maybe_text(value: object) -> str | None:
    """A text, or nothing."""
    return None if value is None else text_of(value)


def whole_of(value: object) -> int:
    """A number that counts something."""
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"a {type(value).__name__} in the place of a number")


def delta_of(value: Any) -> dict[str, Any]:
    """What a parser makes of ids, as streams have it: what it does not tell is left out. All of it
    is text but tool calls, so that names of tomorrow may be passed on, too."""
    told = {name: part for name, part in value.items() if part}
    return {
        name: list(map(_call, part)) if name == "tool_calls" else text_of(part)
        for name, part in told.items()
    }


def _call(value: Any) -> dict[str, Any]:
    told = {name: part for name, part in value.items() if part is not None}
    whole_of(value["index"])
    for name, part in told.items():
        if name == "function":
            told[name] = {n: text_of(p) for n, p in part.items() if p is not None}
        elif name != "index":
            text_of(part)
    return told
