"""The real admin API on a unix socket, in a thread, over a controller that a test plays.

And the program itself, as people run it: a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticd.core.events import Event
from elasticd.ops.admin import full_app
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_site import serve_unix
from elasticd.runtime.ledger import JournalEntry


class Controller:
    """`told` is the status; what is asked ends in `emitted`. Entries get their numbers here.

    `looked` is released with each look into the journal.
    """

    def __init__(self, status: dict[str, Any]) -> None:
        self.told = status
        self.emitted: list[Event] = []
        self.entries: list[JournalEntry] = []
        self.looked = threading.Semaphore(0)
        self.reloads_asked_by: list[str] = []
        self.outcome: dict[str, Any] = {"problem": "", "changed": [], "needs_restart": []}

    def write(
        self, at: float, events: tuple[dict[str, Any], ...], reasons: list[tuple[str, str]]
    ) -> None:
        """One more journal entry."""
        plan = {"reasons": [{"subject": s, "text": t} for s, t in reasons], "actions": []}
        self.entries.append(JournalEntry(at, events, plan, len(self.entries) + 1, 1))

    async def journal(self, since_seq: int, since: float, limit: int) -> list[JournalEntry]:
        self.looked.release()
        found = [e for e in self.entries if e.seq > since_seq and e.at >= since]
        return found[:limit]

    async def reload(self, by: str) -> dict[str, Any]:
        self.reloads_asked_by.append(by)
        return self.outcome

    async def preempt(self, node_id: str, notice: float | None, by: str) -> dict[str, Any]:
        return {"node_id": node_id, "notice": notice}

    async def wait_for_other(self, epoch: int, version: int, wait: float) -> None:
        return None

    @property
    def ports(self) -> AdminPorts:
        return AdminPorts(
            status=lambda: self.told,
            problem=lambda: "",
            waiting_for=list,
            emit=self.emitted.append,
            preempt=self.preempt,
            tables=self,
            journal=lambda seq, since, limit: self.journal(seq, since, limit),
            reload=self.reload,
        )


@contextmanager
def serving(controller: Controller, path: Path) -> Iterator[Controller]:
    """Serves while the block runs."""
    up = threading.Event()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, down = asyncio.get_running_loop(), asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(down.set))
        async with serve_unix(full_app(controller.ports), path):
            up.set()
            await down.wait()

    # `asyncio.run` also ends what came in while it stopped, as the end of a process would.
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(20.0), "the admin API did not come up"
        yield controller
    finally:
        stop[0]()
        thread.join()


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change a command's mind."""
    kept = {k: v for k, v in os.environ.items() if k not in ("ELASTICD_CONFIG", "COLUMNS")}
    return {**kept, **more}


def elasticd(
    *argv: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end; its output is read as UTF-8."""
    return subprocess.run(
        [sys.executable, "-m", "elasticd.cli", *map(str, argv)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60.0,
        check=False,
        env=dict(env) if env is not None else environment(),
        cwd=cwd,
    )


def started(*argv: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts one command that goes on."""
    return subprocess.Popen(
        [sys.executable, "-m", "elasticd.cli", *map(str, argv)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=dict(env) if env is not None else environment(),
    )
