"""What became of a node that went, in words: for `status --why`, `drain` and `drill`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.status_rows import known
from elasticd.ops.text_table import clean

_COUNTS = {
    "finished": "finished there",
    "continued": "continued elsewhere",
    "restarted": "started again",
    "lost": "lost",
}
_RECENT = 5

_MORE = "; the gateway has started again meanwhile: what it had under way is not counted"


def counts(departure: Mapping[str, Any]) -> str:
    """What became of its requests."""
    if all(departure.get(name) == 0 for name in _COUNTS):
        return "no request was finished, moved or lost"
    return ", ".join(f"{known(departure.get(name))} {words}" for name, words in _COUNTS.items())


def numbers(departure: Mapping[str, Any]) -> tuple[Any, ...]:
    """All that changes while a node goes, but its age."""
    return tuple(departure.get(name) for name in (*_COUNTS, "ended_after", "whole_after"))


def departed(departure: Mapping[str, Any], *, why: bool = False) -> str:
    """One sentence about one departure, without its age. `why`: with its reason."""
    who = clean(departure["node_id"])
    if why and departure.get("why"):
        who += f" ({clean(departure['why'])})"
    return f"{_departed(departure, who)}{_MORE if departure.get('partial') else ''}"


def _departed(departure: Mapping[str, Any], who: str) -> str:
    if departure.get("taken_back"):
        return f"{who} stays, its drain was taken back: {counts(departure)}"
    ended, whole = departure.get("ended_after"), departure.get("whole_after")
    out = "still drains" if ended is None else f"went out of service after {age(ended)}"
    strength = "not yet at full strength" if whole is None else f"full strength after {age(whole)}"
    return f"{who} {out}: {counts(departure)}; {strength}"


def departures_of(status: Mapping[str, Any], model: str) -> Iterator[str]:
    """The latest ones of nodes that served the model."""
    told = [d for d in status.get("departures") or () if model in d["models"]]
    for departure in told[-_RECENT:]:
        yield f"{age(departure['age'])} ago: {departed(departure, why=True)}"
