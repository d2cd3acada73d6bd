"""One life of a fleet on a cloud of its own: what a script can do in it and wait for.

A controller that dies is started again, and a command is repeated until it has been acknowledged;
so much does a supervisor, and whoever types commands. Everything else must come by itself. Each
part of a script ends at rest: as many machines as are wanted, each one a node's.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml

from elasticd.cli.admin_client import AdminClient
from elasticd.cluster_secret import ClusterSecret
from tests.providers.fake_site import FakeSite, fake_site
from tests.sweep.agent import FakeAgent
from tests.sweep.boundaries import Death, crossings
from tests.sweep.daemon import Daemon
from tests.sweep.fleet import LAGS, OFFERS, POOL, configuration
from tests.sweep.nursery import Nursery
from tests.sweep.story import Story
from tests.sweep.verdict import judge
from tests.sweep.view import CLUSTER, Missing, View

_LOOK = 0.1
"""Seconds between two looks at the cloud."""

LIMIT = 120.0
"""Seconds in which a fleet must have come to rest, whatever happened to its controller."""

Script = Callable[["Life"], Awaitable[None]]
NextDeath = Callable[[Story], Death]


class NotAtRest(Exception):
    """What was to be did not come in time."""


class NotSetUp(Exception):
    """What a life is played on did not come up: that says nothing of elasticd."""


class Life:
    """`next_death` is asked before each start of a controller, with the story so far."""

    def __init__(self, nursery: Nursery, folder: Path, script: str, next_death: NextDeath) -> None:
        self._nursery = nursery
        self._folder = folder
        self._next_death = next_death
        self._story = Story(script)
        self._marks = folder / "marks"
        self._part = ""
        self._died_at: float | None = None
        self._foreign: set[str] = set()
        self._begun = asyncio.Event()
        self._config: dict[str, Any] = {}
        self._seen: asyncio.Future[dict[str, Any]]
        self.site: FakeSite
        self._agent: FakeAgent
        self._daemon: Daemon

    async def play(self, script: Script) -> Story:
        """Raises `NotSetUp`; for what the product did it never raises: that is in the story."""
        began, story = time.monotonic(), self._story
        async with AsyncExitStack() as parts:
            try:
                await self._set_up(parts)
            except TimeoutError as late:
                raise NotSetUp(f"the fake cloud did not start: {late!r}") from late
            try:
                await self._played(script)
            except* Exception as several:
                story.problems += [f"{self._part}: {one!r}" for one in several.exceptions]
            finally:
                self._daemon.kill()
            await self._judge()
        story.starts = self._daemon.starts
        story.crossed = crossings(self._marks)
        story.seconds = time.monotonic() - began
        return story

    async def _set_up(self, parts: AsyncExitStack) -> None:
        state_dir = self._folder / "state"
        state_dir.mkdir(parents=True, mode=0o700)
        (self._folder / "model").mkdir()
        self.site = await parts.enter_async_context(fake_site(self._folder, offers=OFFERS))
        secret = ClusterSecret.load_or_create(state_dir)
        self._agent = FakeAgent(CLUSTER, secret.agent_token)
        port = await self._agent.start()
        parts.push_async_callback(self._agent.close)
        self._config = configuration(self._folder, port, self.site.url)
        self.write_config()
        self._daemon = Daemon(
            self._nursery,
            self._folder / "elasticd.yaml",
            state_dir / "run" / "admin.sock",
            self._marks,
            lambda: self._next_death(self._story),
            self._died,
        )

    async def _played(self, script: Script) -> None:
        async with asyncio.TaskGroup() as group:
            self._seen = asyncio.get_running_loop().create_future()
            watching = group.create_task(self._watch())
            running = group.create_task(self._run())
            await script(self)
            await self._daemon.stop(running)
            watching.cancel()

    async def _run(self) -> None:
        await self._begun.wait()
        await self._daemon.run()

    async def _watch(self) -> None:
        """Sees what the cloud has, and lets the agent see it."""
        while True:
            truth = await self.site.truth()
            await self._agent.see(truth["machines"])
            self._seen.set_result(truth)
            self._seen = asyncio.get_running_loop().create_future()
            await asyncio.sleep(_LOOK)

    async def _look(self) -> View:
        """The next view."""
        truth = await asyncio.shield(self._seen)
        status = await self._daemon.ask(lambda admin: admin.status())
        return View(truth, status, self._foreign)

    def _died(self) -> None:
        self._died_at = time.monotonic()
        self._story.deaths.append((self._part, crossings(self._marks)[-1]))

    async def _judge(self) -> None:
        truth, story = await self.site.truth(), self._story
        story.machines = len(truth["machines"]) - len(self._foreign)
        story.calls = dict(truth["calls"]["counts"])
        met = (call for call in truth["calls"]["recent"] if call["effect"])
        story.faults = dict(Counter(f"{call['operation']} {call['effect']}" for call in met))
        verdict = judge(truth, CLUSTER, self._foreign)
        story.leaked = verdict.leaked
        story.launched_twice = verdict.launched_twice
        story.foreign_touched = verdict.foreign_touched

    # For scripts.

    async def begin(self) -> None:
        """The controller starts. What was planted has been there for longer than lists lag."""
        await self.site.skip(max(LAGS.values()))
        self._begun.set()

    def part(self, name: str) -> None:
        """Names what follows."""
        self._part = name

    async def plant(self, name: str) -> None:
        """A machine of somebody who knows nothing of elasticd."""
        self._foreign.add((await self.site.plant(name))["id"])

    async def plant_node(self, cluster: str, ledger: str) -> None:
        """A machine of another elasticd."""
        planted = await self.site.plant_node(cluster=cluster, ledger=ledger, pool=POOL)
        self._foreign.add(planted["id"])

    async def faults(self, *calls: Mapping[str, Any], **world: Any) -> None:
        """What goes wrong from now on; lists lag always."""
        await self.site.faults(**{**LAGS, **world}, calls=[dict(call) for call in calls])

    def write_config(self, **pool: Any) -> None:
        """The configuration file, with changes of the pool."""
        self._config["node_pools"][0].update(pool)
        draft = self._folder / "elasticd.yaml.new"
        draft.write_text(yaml.safe_dump(self._config), encoding="utf-8")
        draft.replace(self._folder / "elasticd.yaml")

    async def command(self, what: Callable[[AdminClient], Any]) -> None:
        """Repeated until it is acknowledged."""
        deadline = time.monotonic() + LIMIT
        while await self._daemon.ask(what) is None:
            if time.monotonic() > deadline:
                raise NotAtRest(f"no controller took a command; its log: {self._daemon.log()}")
            await asyncio.sleep(_LOOK)

    async def until(self, missing: Missing) -> View:
        """The first view in which nothing is missing."""
        deadline = time.monotonic() + LIMIT
        while what := missing(view := await self._look()):
            if time.monotonic() > deadline:
                told = f"{view}; log {self._daemon.log()}"
                raise NotAtRest(f"not within {LIMIT:g} s: {what}; {told}")
        return view

    async def rest(self, missing: Missing) -> View:
        """As `until`, for the end of a part."""
        view = await self.until(missing)
        if self._died_at is not None:
            self._story.recovered.append(time.monotonic() - self._died_at)
            self._died_at = None
        return view

    def check(self, holds: bool, problem: str) -> None:
        """A promise of the script's own."""
        if not holds:
            self._story.problems.append(f"{self._part}: {problem}")
