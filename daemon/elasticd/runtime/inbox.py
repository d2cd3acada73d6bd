"""Where events wait for the control loop."""

from __future__ import annotations

import asyncio
import contextlib

from elasticd.core.events import Event


class Inbox:
    """Anyone puts, one takes everything that is there: a burst becomes one step."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._filled = asyncio.Event()

    def put(self, event: Event) -> None:
        """Adds an event; never blocks."""
        self._events.append(event)
        self._filled.set()

    async def take(self, timeout: float | None) -> tuple[Event, ...]:
        """Everything there is, in order; empty after a poke or `timeout` seconds of nothing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        return self.take_now()

    def poke(self) -> None:
        """Ends a wait without an event."""
        self._filled.set()

    def take_now(self) -> tuple[Event, ...]:
        """Everything there is now."""
        events, self._events = tuple(self._events), []
        self._filled.clear()
        return events
