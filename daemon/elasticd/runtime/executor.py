"""Carries out actions side by side; each ends in exactly one event.

Never two of the same call at once: a repeat while one is under way is dropped, for the answer
of the first will tell. Orders about one replica keep their order, so a stop never overtakes its
start. Knows nothing of what an action does (`runtime.performer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from elasticd.core.actions import LaunchNode, ReadBootLog, TerminateNode
from elasticd.core.events import Event
from elasticd.runtime.performer import Call, subject_of
from elasticd.runtime.ports import Emit


class Performs(Protocol):
    """Turns one action into one event and never raises."""

    async def perform(self, action: Call) -> Event: ...


class Executor:
    """Owns the tasks in which actions run."""

    def __init__(self, performer: Performs, emit: Emit) -> None:
        self._performer = performer
        self._emit = emit
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def in_flight(self) -> list[str]:
        """What is under way, as `Kind subject`, oldest first."""
        return [f"{kind} {subject}" for subject, kind in self._tasks]

    def start(self, actions: Iterable[Call]) -> None:
        """Begins each action, unless the same one is under way."""
        for action in actions:
            key = (subject_of(action), type(action).__name__)
            if key not in self._tasks:
                task = asyncio.create_task(
                    self._run(key, action, self._before(action)), name=f"{key[1]} {key[0]}"
                )
                self._tasks[key] = task

    def _before(self, action: Call) -> list[asyncio.Task[None]]:
        """What must have ended first: orders about the same start of a replica."""
        if isinstance(action, LaunchNode | TerminateNode | ReadBootLog):
            return []  # ending a machine never waits, least of all for a launch that hangs
        mine = subject_of(action)
        return [task for (subject, _), task in self._tasks.items() if subject == mine]

    async def _run(
        self, key: tuple[str, str], action: Call, before: list[asyncio.Task[None]]
    ) -> None:
        try:
            if before:
                await asyncio.wait(before)
            event = await self._performer.perform(action)
        finally:
            # Before the event is out: what the core decides on it may be the same call again.
            self._tasks.pop(key, None)
        self._emit(event)

    async def aclose(self, grace: float = 0.0) -> None:
        """Waits `grace` seconds for answers, then cancels: what had none is asked again later."""
        if self._tasks and grace > 0:
            await asyncio.wait(self._tasks.values(), timeout=grace)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before its first step never reached its own `finally`.
        self._tasks.clear()
