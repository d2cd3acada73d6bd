"""A whole stack on the gated engine: brought into a state, held there, looked at from outside."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from elasticd.cli.admin_client import AdminClient
from elasticd.demo.stack import Stack, Status, TooLate
from elasticd_providers.local.switches import write_switches
from tests.e2e.living import Living, node_dirs
from tests.e2e.stack_config import MODEL, POOL, write_gated_config
from tests.e2e.watched_load import WatchedLoad

T = TypeVar("T")

AGAIN = 120.0
"""Seconds in which the wanted state must be there again, whatever was killed."""
ARRIVAL = 60.0
"""Seconds in which a phase must be reached."""
BY = "kill matrix"
_START = 120.0
_QUICK = 0.03
_CALM = 0.1


@dataclass(frozen=True, slots=True)
class View:
    """What the controller says and what runs, at about the same moment."""

    status: Status
    living: Living

    @property
    def ready(self) -> dict[str, str]:
        """The node of each ready replica, by replica id."""
        return {r["id"]: r["node_id"] for r in self.status["replicas"] if r["phase"] == "ready"}

    @property
    def nodes(self) -> dict[str, str]:
        """The phase of each node that is not gone."""
        return {n["id"]: n["phase"] for n in self.status["nodes"] if n["phase"] != "gone"}

    @property
    def replicas(self) -> dict[str, str]:
        """The phase of each replica that has not stopped."""
        found = self.status["replicas"]
        return {r["id"]: r["phase"] for r in found if r["phase"] != "stopped"}

    def node_of(self, replica_id: str) -> str:
        return next(str(r["node_id"]) for r in self.status["replicas"] if r["id"] == replica_id)

    def empty_nodes(self) -> list[str]:
        """Ready nodes without any replica."""
        used = {self.node_of(replica_id) for replica_id in self.replicas}
        return [n for n, phase in self.nodes.items() if phase == "ready" and n not in used]


class Site:
    """One stack with a short path of its own; `admin` is its operator's hand."""

    def __init__(self) -> None:
        # Not below pytest's folder: unix sockets allow a hundred characters only.
        self.folder = Path(tempfile.mkdtemp(prefix="ek-", dir="/tmp"))
        self.stack = Stack(write_gated_config(self.folder), self.folder / "run.log")
        self.admin = AdminClient(self.stack.settings.admin_socket, timeout=5.0)
        self.pool_dir = self.stack.state_dir / "pools" / POOL
        self.gate = self.folder / "gate"
        self.story: list[tuple[float, str]] = []

    async def start(self) -> float:
        """Seconds until one replica serves."""
        self.stack.start()
        return await self.until_whole(1, _START)

    def load(self) -> WatchedLoad:
        return WatchedLoad(self.stack.url, MODEL)

    async def ask(self, call: Callable[[], Any]) -> None:
        """One call of the operator."""
        await asyncio.to_thread(call)

    async def scale(self, count: int) -> None:
        await self.ask(lambda: self.admin.scale(MODEL, count, None, BY))

    async def drain(self, node_id: str, seconds: float) -> None:
        await self.ask(lambda: self.admin.drain(node_id, seconds, BY))

    def hang_provider(self) -> None:
        """Every call to the provider waits, before anything has happened, until `release`."""
        write_switches(self.pool_dir, hang="before")

    def close_gate(self) -> None:
        """Engines that are started from now on answer nothing until `release`."""
        self.gate.touch()

    def release(self) -> None:
        """Nothing is held any more."""
        self.gate.unlink(missing_ok=True)
        write_switches(self.pool_dir)

    async def view(self) -> View | None:
        """`None` while the controller does not answer."""
        status = await self.stack.status()
        if status is None:
            return None
        return View(status, await asyncio.to_thread(Living.look, self.pool_dir))

    async def find(self, what: str, seen: Callable[[View], T | None]) -> T:
        """The first thing `seen` in quick looks; raises `TooLate`."""
        return await _within(ARRIVAL, what, self.view, seen, _QUICK)

    async def until_whole(
        self, count: int, limit: float = AGAIN, also: Callable[[View], str] = lambda _: ""
    ) -> float:
        """Seconds until nothing is missing or too much, and `also` has no objection either.

        What was in the way, and from which second on, is in `story` then.
        """
        began = time.monotonic()
        self.story = []

        def whole(view: View) -> bool | None:
            objection = also(view)
            told = self.fault(view, count) or objection
            if not self.story or told != self.story[-1][1]:
                self.story.append((round(time.monotonic() - began, 1), told))
            return None if told else True

        try:
            await _within(limit, f"{count} replicas, nothing else", self.view, whole, _CALM)
        except TooLate as late:
            told = self.story[-1][1] if self.story else "the controller does not answer"
            raise TooLate(f"{late}: {told}\n{self.stack.last_lines(15)}") from None
        return time.monotonic() - began

    def fault(self, view: View, count: int) -> str:
        """What is not as it should be with `count` replicas wanted; empty: nothing."""
        [model] = view.status["models"]
        wanted = {"wanted": count, "ready": count, "starting": 0, "pending": 0, "draining": 0}
        counts = {name: model[name] for name in wanted}
        if counts != wanted:
            return f"{counts}, blocked: {model['blocked']}"
        if not view.status["cluster_complete"]:
            return f"the cluster is not seen whole: {view.status['cluster_detail']}"
        if sorted(view.nodes.values()) != ["ready"] * count:
            return f"nodes {view.nodes}"
        if set(view.living.machines) != set(view.nodes):
            return f"machines of {sorted(view.living.machines)} for nodes {sorted(view.nodes)}"
        return self._wrong_processes(view)

    def _wrong_processes(self, view: View) -> str:
        """Exactly one process of each kind for each ready replica, and no engine beside them."""
        for kind in ("watcher", "raylet", "actor", "engine supervisor"):
            running, due = view.living.nodes_with(kind), set(view.ready.values())
            if set(running) != due or set(running.values()) - {1}:
                return f"{kind}s {dict(running)} for nodes {sorted(due)}"
        engines, due = view.living.engines(), set(view.ready)
        if set(engines) != due or set(engines.values()) - {1}:
            return f"engines {dict(engines)} for replicas {sorted(due)}"
        marked = self.stack.engines()
        if set(marked) != due:
            return f"processes of engines {marked} for replicas {sorted(due)}"
        return ""

    async def restart_supervisor(self) -> None:
        """What a person or systemd does when `elasticd run` was killed."""
        await self.stack.stop()  # has ended: only reaped
        self.stack.start()

    def supervised(self) -> bool:
        """Whether the `elasticd run` that was started last has taken over."""
        lock = self.stack.state_dir / "run" / "supervisor.lock"
        return lock.read_text() == str(self.stack.supervisor)

    async def go_down(self) -> list[str]:
        """`elasticd down`, then the end of `elasticd run`; what is left then, in words."""
        directories = node_dirs(self.pool_dir)
        command = [sys.executable, "-m", "elasticd.cli", "down", "--yes", "--json"]
        down = await asyncio.to_thread(
            subprocess.run,
            [*command, "-c", str(self.stack.config)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=AGAIN,
            check=False,
        )
        left = [] if down.returncode == 0 else [f"`down` ended with {down.stderr.strip()}"]
        left += [f"machine {m}" for m in self.pool_dir.glob("machines/*")]
        code = await self.stack.stop()
        left += [] if code == 0 else [f"`elasticd run` ended with {code}"]
        left += [f"process {pid}" for pid in self.stack.processes()]
        left += [f"directory {d}" for d in directories if d.exists()]
        return left

    def close(self) -> None:
        """Nothing of it stays, however it went."""
        self.stack.kill_everything()
        shutil.rmtree(self.folder, ignore_errors=True)


async def _within(
    limit: float,
    what: str,
    look: Callable[[], Awaitable[View | None]],
    seen: Callable[[View], T | None],
    pause: float,
) -> T:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        view = await look()
        found = seen(view) if view is not None else None
        if found is not None:
            return found
        await asyncio.sleep(pause)
    raise TooLate(f"{what}: not within {limit:g} s")
