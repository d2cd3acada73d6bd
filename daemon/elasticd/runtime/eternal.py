"""Parts that run until they are cancelled: one that simply ends is a fault and not a success."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from elasticd.errors import ElasticdError

Eternal = Callable[[], Coroutine[Any, Any, None]]


class PartEnded(ElasticdError):
    """A part that should run for ever has ended."""


async def for_ever(name: str, part: Eternal) -> None:
    """Runs the part. Raises `PartEnded` when it returns."""
    await part()
    raise PartEnded(f"{name}: ended, though it should run for ever")
