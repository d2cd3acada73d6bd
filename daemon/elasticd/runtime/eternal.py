"""Parts that run until they are cancelled: one that simply ends is a fault and not a success."""

from __future__ import annotations

import asyncio
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


async def again_and_again(
    name: str, part: Eternal, on_fault: Callable[[Exception], None], pause: Callable[[int], float]
) -> None:
    """Runs a part whose faults concern nobody else: told to `on_fault`, and begun again.

    `pause`: the seconds before that, from how many short lives it had in a row.
    """
    now, faults = asyncio.get_running_loop().time, 0
    while True:
        began = now()
        try:
            await for_ever(name, part)
        except Exception as fault:
            faults = 1 if now() - began > pause(faults) else faults + 1
            on_fault(fault)
        await asyncio.sleep(pause(faults))
