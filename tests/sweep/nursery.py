"""Controllers that start quickly: forked from a process that has imported everything already.

A sweep starts a controller more than a thousand times, and two thirds of what it would cost are
imports. What is forked is a process like any other: its own pid, files, locks, and death.

    python -m tests.sweep.nursery

takes `{"config", "env", "log"}` by lines, and tells `{"born": pid}` and `{"ended": pid, "code"}`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sweep.boundaries import VARIABLE, Death

_ROOT = Path(__file__).parents[2]


class Nursery:
    """The harness's side."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._born: list[asyncio.Future[int]] = []
        self._ended: dict[int, asyncio.Future[int]] = {}

    async def start(self, config: Path, marks: Path, death: Death, log: Path) -> int:
        """The pid of a new controller."""
        told = {"config": str(config), "env": death.to_env(marks), "log": str(log)}
        born: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._born.append(born)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(told)}\n".encode())
        return await born

    async def ended(self, pid: int) -> int:
        """How it ended, once it has: its exit code, or a negative signal."""
        return await asyncio.shield(self._ended[pid])

    async def listen(self) -> None:
        """Until the nursery ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "born" in told:
                self._ended[told["born"]] = asyncio.get_running_loop().create_future()
                self._born.pop(0).set_result(told["born"])
            else:
                self._ended[told["ended"]].set_result(told["code"])


@asynccontextmanager
async def nursery() -> AsyncIterator[Nursery]:
    """One for a whole sweep; what it has started ends with it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.sweep.nursery"),
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    here = Nursery(process)
    listening = asyncio.create_task(here.listen())
    try:
        yield here
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


def _bear(told: dict[str, Any]) -> int:
    """Forks; the child is the controller and never returns from here."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ[VARIABLE] = told["env"]
        from tests.sweep import controller

        controller.main(["-c", told["config"]])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tell(**what: int) -> None:
    os.write(1, f"{json.dumps(what)}\n".encode())


def _bury(living: set[int]) -> None:
    """Tells of all that have ended."""
    while living:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        living.discard(pid)
        _tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Until its input ends."""
    from tests.sweep import controller  # what every child has already

    assert controller
    gc.freeze()
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with whoever started it
    looking = selectors.DefaultSelector()
    looking.register(0, selectors.EVENT_READ)
    looking.register(woken, selectors.EVENT_READ)
    living: set[int] = set()
    pending = b""
    while True:
        for key, _ in looking.select():
            got = os.read(key.fd, 65536)
            if key.fd == woken:
                _bury(living)
                continue
            if not got:
                for pid in living:
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                pid = _bear(json.loads(line))
                living.add(pid)
                _tell(born=pid)


if __name__ == "__main__":
    main()
