"""The processes singly, each kept as systemd keeps a unit: any can be held down alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from elasticd.cli.run_plan import make_state_dir, parts
from elasticd.ops.process_mark import gone
from elasticd.ops.supervisor import ChildSpec
from elasticd.settings.load import Configuration

_AGAIN = 0.5
"""Seconds from an end to the next start."""


class Unit:
    """One process. `lives`: how often it was started; `pid` 0: it does not run."""

    def __init__(self, spec: ChildSpec, log: Path) -> None:
        self.name = spec.name
        self.lives = 0
        self.pid = 0
        self.ended_at: list[float] = []
        self._argv = spec.argv
        self._log = log
        self._wanted = asyncio.Event()
        self._ending = False

    async def keep(self) -> None:
        """Starts it, and again whenever it ends, unless it is held down; until `stop`."""
        while not self._ending:
            await self._wanted.wait()
            if self._ending:
                return
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.pid, self.lives = process.pid, self.lives + 1
            await process.wait()
            self.pid = 0
            self.ended_at.append(time.monotonic())
            await asyncio.sleep(_AGAIN)

    def start(self) -> None:
        """From now on it is wanted."""
        self._wanted.set()

    async def kill(self) -> None:
        """SIGKILL; it comes back by itself."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(10.0):
            await gone(pid)

    async def kill_and_keep_down(self) -> None:
        """SIGKILL, and nothing brings it back before `start`."""
        self._wanted.clear()
        await self.kill()

    async def stop(self) -> None:
        """SIGTERM, and the end of it."""
        self._ending = True
        self._wanted.set()
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            async with asyncio.timeout(60.0):
                await gone(pid)


class Units:
    """All of a configuration's processes; `async with` starts them, and ends them in reverse."""

    def __init__(self, config: Configuration, log: Path) -> None:
        make_state_dir(config)
        self._units = {part.spec.name: Unit(part.spec, log) for part in parts(config)}
        self._keeping: list[asyncio.Task[None]] = []

    def __getitem__(self, name: str) -> Unit:
        return self._units[name]

    async def __aenter__(self) -> Units:
        for unit in self._units.values():
            unit.start()
            self._keeping.append(asyncio.create_task(unit.keep(), name=f"keep {unit.name}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for unit in reversed(self._units.values()):
            await unit.stop()
        await asyncio.gather(*self._keeping)
