"""One cell of the kill matrix: one process of a serving fleet is killed in one phase.

Promised for every cell: within two minutes the wanted state is there again, with exactly the
engines, processes and machines that it takes; what did not hang on the dead one is still the same;
every request has its whole answer, but streams of a replica that was killed, which say so, and
connections to a gateway that was killed, which break.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from elasticd.demo.stack import TooLate
from elasticd.errors import ElasticdError
from elasticd.ops.process_mark import gone
from tests.e2e.kill_scenes import SCENES, Scene, Subject
from tests.e2e.kill_site import Site, View
from tests.e2e.living import PARTS, machine_init
from tests.e2e.stack_config import MOST_NODES
from tests.e2e.watched_load import End, WatchedLoad

CHILDREN = ("controller", "gateway", "agent", "head")
PROCESSES = ("supervisor", *CHILDREN, *PARTS, "machine")
PHASES = tuple(scene.name for scene in SCENES)
_STEP = 30.0
# Ray's driver cannot follow a head into its next life: the agent attaches anew by starting anew.
_LIVES_ANEW = {"head": ("head", "agent")}


@dataclass(frozen=True, slots=True)
class Cell:
    """What is killed, and when."""

    process: str
    phase: str

    def __str__(self) -> str:
        return f"{self.process}/{self.phase}"

    @property
    def scene(self) -> Scene:
        return SCENES[PHASES.index(self.phase)]


@dataclass(slots=True)
class Result:
    """What became of a cell; times in seconds. `on`: whose process it was; `arrival`: until
    the phase was there; `story`: what was in the way of being whole, and from which second on."""

    process: str
    phase: str
    reached: bool = False
    on: str = ""
    arrival: float | None = None
    whole_again: float | None = None
    answered: int = 0
    reconnects: int = 0
    streams_told: int = 0
    connections_cut: int = 0
    requests_lost: int = 0
    second_copies: int = 0
    most_machines: int = 0
    machines_left: int | None = None
    story: list[tuple[float, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return self.reached and not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fine": self.fine}


@dataclass(frozen=True, slots=True)
class Kill:
    """Who was killed, and what there was in the moment before."""

    pid: int
    at: float
    view: View
    node_id: str
    replicas: frozenset[str]
    children: dict[str, int]


class Play:
    """One cell played on a site."""

    def __init__(self, site: Site, cell: Cell) -> None:
        self._site = site
        self._cell = cell
        self._result = Result(cell.process, cell.phase)

    async def run(self) -> Result:
        """Never raises for what the product did; that is in the result."""
        self._began = time.monotonic()
        try:
            await self._site.scale(self._cell.scene.before)
            await self._site.until_whole(self._cell.scene.before)
            async with self._site.load() as load:
                await self._under(load)
        except (TooLate, ElasticdError) as bad:
            self._result.problems.append(str(bad))
        finally:
            self._site.release()
        return self._result

    async def _under(self, load: WatchedLoad) -> None:
        scene = self._cell.scene
        subject = await scene.enter(self._site, load)
        kill = await self._strike(load, subject)
        self._result.reached = True
        self._result.arrival = round(kill.at - self._began, 2)
        self._site.release()
        if self._cell.process == "supervisor":
            await self._site.restart_supervisor()
        try:
            await self._site.until_whole(scene.after, also=lambda v: self._objection(v, kill))
            self._result.whole_again = round(time.monotonic() - kill.at, 2)
        finally:
            self._result.story = self._site.story
            await load.finish()
            self._judge_requests(load, kill)
        view = await self._site.view()
        if view is not None:
            self._judge_survivors(view, kill)
            self._result.machines_left = len(view.living.machines) - scene.after

    async def _strike(self, load: WatchedLoad, subject: Subject) -> Kill:
        """Kills in the moment in which the phase is seen to hold."""

        def seen(view: View) -> Kill | None:
            if not self._cell.scene.holds(view, load, subject):
                return None
            node_id = self._node(view, subject)
            pid = self._pid(view, node_id)
            if pid is None:
                return None
            os.kill(pid, signal.SIGKILL)
            replicas = frozenset(r for r in view.replicas if node_id == view.node_of(r) != "")
            children = {name: self._site.stack.child(name) for name in CHILDREN}
            return Kill(pid, time.monotonic(), view, node_id, replicas, children)

        kill = await self._site.find(f"{self._cell}", seen)
        async with asyncio.timeout(_STEP):
            await gone(kill.pid)
        return kill

    def _node(self, view: View, subject: Subject) -> str:
        """The machine of which something is to be killed; empty: of none."""
        if self._cell.process not in (*PARTS, "machine"):
            self._result.on = "control plane"
            return ""
        if self._cell.process in self._cell.scene.there:
            self._result.on = "subject"
            return subject.node_id
        self._result.on = "another node"
        return next((n for n in view.ready.values() if n != subject.node_id), "")

    def _pid(self, view: View, node_id: str) -> int | None:
        match self._cell.process:
            case "supervisor":
                return self._site.stack.supervisor
            case "machine":
                return machine_init(self._site.pool_dir, node_id)
            case name if name in CHILDREN:
                return self._site.stack.child(name)
            case kind:
                return view.living.find(kind, node_id)

    def _objection(self, view: View, kill: Kill) -> str:
        """Why it is not over: the death is not even noticed yet."""
        self._note(view)
        name = self._cell.process
        if name == "supervisor":
            return "" if self._site.supervised() else "no new `elasticd run`"
        if name in CHILDREN:
            due = _LIVES_ANEW.get(name, (name,))
            old = [n for n in due if self._site.stack.child(n) == kill.children[n]]
            return f"no new {old[0]}" if old else ""
        if name in ("machine", "watcher", "raylet"):
            # A node that only boots may start its Ray again.
            anew = view.living.find(name, kill.node_id) not in (None, kill.pid)
            there = kill.node_id in view.nodes and not anew
            return f"node {kill.node_id} is there" if there else ""
        still = kill.replicas & set(view.replicas)
        return f"replicas {sorted(still)} are there" if still else ""

    def _note(self, view: View) -> None:
        engines = view.living.engines()
        copies = sum(count - 1 for count in engines.values())
        self._result.second_copies = max(self._result.second_copies, copies)
        machines = len(view.living.machines)
        self._result.most_machines = max(self._result.most_machines, machines)

    def _judge_survivors(self, view: View, kill: Kill) -> None:
        """What worked and did not hang on the dead one has not been replaced."""
        survivors = set(kill.view.ready) - kill.replicas
        self._expect(survivors <= set(view.ready), f"of {survivors} only {set(view.ready)} stayed")
        now = {name: self._site.stack.child(name) for name in CHILDREN}
        spared = set(CHILDREN) - {self._cell.process, *_LIVES_ANEW.get(self._cell.process, ())}
        others = [name for name in sorted(spared) if now[name] != kill.children[name]]
        self._expect(not others, f"{others} were started again as well")
        self._expect(self._result.second_copies == 0, "an engine ran twice")
        self._expect(self._result.most_machines <= MOST_NODES, "more machines than allowed")

    def _judge_requests(self, load: WatchedLoad, kill: Kill) -> None:
        result = self._result
        result.answered = load.count(End.ANSWERED)
        result.reconnects = sum(r.reconnects for r in load.requests)
        result.streams_told = load.count(End.TOLD)
        result.connections_cut = load.count(End.CUT)
        for request in load.requests:
            told = request.end is End.TOLD and request.replica in kill.replicas
            cut = request.end is End.CUT and self._cell.process == "gateway"
            if request.end is not End.ANSWERED and not told and not cut:
                result.requests_lost += 1
                result.problems.append(
                    f"request {request.end} by {request.replica}: {request.story[:300]}"
                )

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self._result.problems.append(problem)


async def play_all(
    cells: Sequence[Cell], tell: Callable[[Result], None]
) -> tuple[list[Result], list[str], dict[str, float]]:
    """All cells one after the other on one stack, `down` at the end: results, leftovers, figures.

    After a cell that did not come back, the rest is played on a new stack.
    """
    results: list[Result] = []
    left: list[str] = []
    figures = {"start": 0.0, "down": 0.0, "stacks": 0.0}
    waiting = list(cells)
    while waiting:
        site = Site()
        try:
            figures["start"] = round(await site.start(), 1)
            figures["stacks"] += 1
            while waiting:
                results.append(await Play(site, waiting.pop(0)).run())
                tell(results[-1])
                if results[-1].whole_again is None:
                    break
            else:
                began = time.monotonic()
                left += await site.go_down()
                figures["down"] = round(time.monotonic() - began, 1)
        finally:
            site.close()
    return results, left, figures
