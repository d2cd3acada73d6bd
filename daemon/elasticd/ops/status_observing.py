"""The first words of a status whose controller only observes: what happened and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.ops.text_table import Paint, Style, bullet, clean, painted


def observing(status: Mapping[str, Any], width: int, paint: Paint) -> Iterator[str]:
    """Nothing for a controller that acts."""
    told = status.get("observe_only")
    if not told:
        return
    fault = f"{clean(told.get('fault'))}: {clean(told.get('message'))}"
    for text in (
        f"OBSERVE ONLY: {clean(told.get('text'))}",
        f"the fault: {fault}",
        f"to do: {clean(told.get('do'))}",
        clean(told.get("below")),
    ):
        yield from painted(bullet("!", text, width), Style.BAD, paint)
    yield ""
