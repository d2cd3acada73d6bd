"""A sleep that can be cut short."""

from __future__ import annotations

import asyncio
import contextlib


class Pulse:
    """`rest` returns after its time, or at once after a `poke`; pokes do not pile up."""

    def __init__(self) -> None:
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Ends the rest under way, or the next one."""
        self._poked.set()

    async def rest(self, seconds: float) -> None:
        """Sleeps for `seconds` unless poked."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        self._poked.clear()
