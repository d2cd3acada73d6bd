"""Keeps a handful of processes running: starts them, starts them again, ends them in order.

It knows nothing of what they do. Each child is a session of its own, so that Ctrl-C in a terminal
reaches the supervisor alone, and leaves a mark file behind, so that the next supervisor adopts
what still runs instead of starting it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.ops.hangup import takes_hangup
from elasticd.ops.inherited import bound, handing_down
from elasticd.ops.process_mark import (
    ProcessMark,
    gone,
    mark_file,
    mark_of,
    read_living,
    write_mark,
)

_LOG_LIMIT = 20_000_000
_HURRY_GRACE = 2.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process to keep. `log` `None`: it writes where we write. `stop_grace` in seconds.

    `first_args` are added in the first life that we start, not when it is started again.
    `reloads`: it reads its configuration again on SIGHUP. `listen`: host and port of which it gets
    the sockets from us, so that its clients are not refused while it is started again.
    """

    name: str
    argv: tuple[str, ...]
    log: Path | None = None
    stop_grace: float = 15.0
    env: Mapping[str, str] = field(default_factory=dict)
    first_args: tuple[str, ...] = ()
    reloads: bool = False
    listen: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class BackOff:
    """Seconds between restarts: doubling, and from the start again after a life of `steady`."""

    first: float = 0.5
    longest: float = 30.0
    steady: float = 60.0

    def after(self, failures: int) -> float:
        """The wait after that many short lives in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30))


@dataclass(frozen=True, slots=True)
class Ended:
    """A child ended without being asked. `code` `None`: not our own child, so not known."""

    name: str
    code: int | None
    lived: float
    again_in: float
    last_words: str


class Child:
    """One process of `spec`, over all its lives."""

    def __init__(
        self, spec: ChildSpec, run_dir: Path, on_end: Callable[[Ended], None], back_off: BackOff
    ) -> None:
        self.spec = spec
        self._mark_file = mark_file(run_dir, spec.name)
        self._on_end = on_end
        self._back_off = back_off
        self._mark: ProcessMark | None = read_living(self._mark_file)
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = asyncio.Event()
        self._started = self._mark is not None
        self._sockets: list[socket.socket] = []

    @property
    def pid(self) -> int | None:
        """The running process, if there is one."""
        return self._mark.pid if self._mark else None

    async def keep(self) -> None:
        """Runs it, again and again, until `end` is called."""
        failures = 0
        while not self._ending.is_set():
            started = time.monotonic()
            if self._mark is None:
                self._spawn()
            code = await self._wait()
            if self._ending.is_set():
                return
            lived = time.monotonic() - started
            failures = 1 if lived >= self._back_off.steady else failures + 1
            delay = self._back_off.after(failures)
            self._on_end(Ended(self.spec.name, code, lived, delay, self._last_words(code)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay)

    def hang_up(self) -> bool:
        """Sends SIGHUP, but not to one that it would end: that has read nothing yet."""
        mark = self._mark
        if mark is None or not mark.alive or not takes_hangup(mark.pid):
            return False
        _signal(mark.pid, signal.SIGHUP)
        return True

    async def end(self, hurry: asyncio.Event) -> None:
        """Asks it to stop, and insists after the grace (soon, once `hurry` is set)."""
        self._ending.set()
        mark = self._mark
        if mark is None or not mark.alive:
            self._close_sockets()
            return
        _signal(mark.pid, signal.SIGTERM)
        ended = asyncio.ensure_future(gone(mark.pid))
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            await asyncio.wait(
                {ended, hurried},
                timeout=self.spec.stop_grace,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not ended.done():
                await asyncio.wait({ended}, timeout=_HURRY_GRACE if hurry.is_set() else 0)
            if not ended.done():
                _signal(mark.pid, signal.SIGKILL)
                await ended
        finally:
            hurried.cancel()
            ended.cancel()
        self._mark_file.unlink(missing_ok=True)
        self._close_sockets()
        # What the process started in its own group and did not take along must not stay.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(mark.pid, signal.SIGKILL)

    def _spawn(self) -> None:
        output = None
        if self.spec.log is not None:
            _rotate(self.spec.log)
            output = self.spec.log.open("ab")
        argv = self.spec.argv if self._started else self.spec.argv + self.spec.first_args
        self._started = True
        self._open_sockets()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.spec.env, **handing_down(self._sockets)},
                pass_fds=[sock.fileno() for sock in self._sockets],
            )
        finally:
            if output is not None:
                output.close()
        # An ended child stays visible until it is waited for, so there is always a mark to take
        # unless it has ended already, and then `_wait` reports that at once.
        self._mark = mark_of(self._process.pid)
        if self._mark is not None:
            write_mark(self._mark_file, self._mark)

    def _open_sockets(self) -> None:
        """Once; where it cannot be done, the child tries itself, and says what is wrong."""
        if self.spec.listen is not None and not self._sockets:
            with contextlib.suppress(OSError):
                self._sockets = bound(*self.spec.listen)

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    async def _wait(self) -> int | None:
        if self._mark is not None:
            await gone(self._mark.pid)
        code = self._process.wait() if self._process is not None else None
        self._mark = self._process = None
        return code

    def _last_words(self, code: int | None) -> str:
        """Its last line; of one that refused to run, all of what it said about that."""
        if self.spec.log is None:
            return ""
        with contextlib.suppress(OSError), self.spec.log.open("rb") as log:
            log.seek(max(0, self.spec.log.stat().st_size - 2000))
            lines = log.read().decode(errors="replace").split("\n")
            lines = [line.rstrip() for line in lines if line.strip()]
            said = [number for number, line in enumerate(lines) if line.startswith("elasticd: ")]
            if code == UsageError.exit_code and said:
                return "\n".join(lines[said[-1] :])
            return _in_words(lines[-1].strip()) if lines else ""
        return ""


def _in_words(line: str) -> str:
    """What a line of a log of ours says, without its fields."""
    try:
        entry = json.loads(line)
        said = [str(entry[key]) for key in ("event", "error") if entry.get(key)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return line
    return ": ".join(said) or line


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _rotate(log: Path) -> None:
    """One older log is kept; a child that is started again goes on in the same file."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
