"""The controller's process as a supervisor has it: killed by itself, it is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from elasticd.cli.admin_client import AdminClient
from elasticd.errors import NotReachable
from tests.sweep.boundaries import Death, crossings
from tests.sweep.nursery import Nursery

T = TypeVar("T")

_LOG_TAIL = 4000
_STOP_LIMIT = 20.0


class UnexpectedEnd(Exception):
    """A controller ended that was not to die."""


class Daemon:
    """One controller after the other. `next_death` is asked before each start, `died` told after
    each death. `starts`: seconds from each start to the first answer."""

    def __init__(
        self,
        nursery: Nursery,
        config: Path,
        socket: Path,
        marks: Path,
        next_death: Callable[[], Death],
        died: Callable[[], None],
    ) -> None:
        self._nursery = nursery
        self._config = config
        self._log = marks.with_name("controller.log")
        self._marks = marks
        self._next_death = next_death
        self._died = died
        self._admin = AdminClient(socket)
        self._pid: int | None = None
        self._stopping = False
        self._started_at: float | None = None
        self.starts: list[float] = []

    async def run(self) -> None:
        """Until `stop`. Raises `UnexpectedEnd`."""
        while not self._stopping:
            self._started_at = time.monotonic()
            death = self._next_death()
            self._pid = await self._nursery.start(self._config, self._marks, death, self._log)
            code = await self._nursery.ended(self._pid)
            self._pid = None
            crossed = crossings(self._marks)
            if code == -signal.SIGKILL and crossed and crossed[-1].died:
                self._died()
            elif code or not self._stopping:
                raise UnexpectedEnd(f"the controller ended with {code}; its log: {self.log()}")

    async def ask(self, what: Callable[[AdminClient], T]) -> T | None:
        """An answer; `None` where nobody is there to give one."""
        try:
            answer = await asyncio.to_thread(what, self._admin)
        except NotReachable:
            return None
        if self._started_at is not None:
            self.starts.append(time.monotonic() - self._started_at)
            self._started_at = None
        return answer

    async def stop(self, running: asyncio.Task[None]) -> None:
        """SIGTERM, and the end of `run`; on the way it may still die."""
        self._stopping = True
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)
        async with asyncio.timeout(_STOP_LIMIT):
            await running

    def kill(self) -> None:
        """Whatever it is doing."""
        self._stopping = True
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    def log(self) -> str:
        """The end of what the controllers have logged."""
        return self._log.read_text(encoding="utf-8")[-_LOG_TAIL:] if self._log.exists() else ""
