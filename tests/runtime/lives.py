"""Lives of a real control loop with a real core and a real ledger, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from elasticd.core.decide import Core
from elasticd.core.events import Configured, EndpointBroken, NoticeArrived, ScaleHeld
from elasticd.core.fleet import Row
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import JournalEntry, JournalLimits, LedgerStore, LedgerWriteFailed
from elasticd.runtime.loop import ControlLoop
from elasticd.runtime.performer import Call
from elasticd.runtime.recorder import Recorder
from tests.core.world import World
from tests.runtime.virtual import LoopClock, VirtualLoop

PERIOD = 0.5


class Disk:
    """The ledger without a thread of its own, which virtual time does not know."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.full = False
        self.commits = 0

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        if self.full:
            raise LedgerWriteFailed("no space left on device")
        self.commits += 1
        self._store.commit(at, rows, entries)


class Cloud:
    """Carries out what the loop asks, answers a little later, and reports what there is."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._inbox = inbox

    def start(self, actions: Iterable[Call]) -> None:
        for action in actions:
            answer = self._world.carry_out(action)
            if answer is not None:
                asyncio.get_running_loop().call_later(0.31, self._inbox.put, answer)

    async def report(self, *, busy: bool) -> None:
        """Twice a second, as the gateway does; lists now and then."""
        for n in range(10**6):
            self._world.boot_all()
            self._world.load_all()
            if n % 10 == 0:
                for listed in self._world.listings():
                    self._inbox.put(listed)
            if n % 4 == 0:
                self._inbox.put(self._world.observed())
            self._inbox.put(self._world.demand(0, n % 50 // 40 if busy else 0))
            self._inbox.put(self._world.idle_loads())
            await asyncio.sleep(PERIOD)


@contextmanager
def opened(state_dir: Path) -> Iterator[LedgerStore]:
    store = LedgerStore(state_dir, JournalLimits())
    try:
        yield store
    finally:
        store.close()


def lived(
    world: World,
    store: LedgerStore,
    seconds: float,
    *,
    killed: bool = False,
    idle: bool = False,
    full: float = 0.0,
) -> Disk:
    """One life of the controller in virtual time; from second 10 on the disk is `full` so long."""
    ours = patch("tests.core.world.LEDGER", store.restored.ledger_id)  # whose machines are made
    with ours, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_live(world, store, seconds, killed, idle, full))


async def _live(
    world: World, store: LedgerStore, seconds: float, killed: bool, idle: bool, full: float
) -> Disk:
    restored = store.restored
    recorder = Recorder()
    recorder.begin(restored)
    disk, inbox, loop = Disk(store), Inbox(), asyncio.get_running_loop()
    cloud = Cloud(world, inbox)
    core = Core(restored.ledger_id, restored.epoch, restored.rows)
    clock = LoopClock(1_700_000_000.0)
    control = ControlLoop(core, clock, inbox, disk, cloud, lambda table: None, recorder)
    inbox.put(Configured(world.spec))
    reports = loop.create_task(cloud.report(busy=not idle))
    if not idle:
        loop.call_later(5.0, inbox.put, ScaleHeld("m", 3, 40.0, "test"))
        loop.call_later(20.0, inbox.put, EndpointBroken("r-none", 1, "broken"))
        for node in list(world.instances)[:1]:
            loop.call_later(7.0, inbox.put, NoticeArrived("n", "spot", node, "interruption", 30.0))
    if full:
        loop.call_later(10.0, setattr, disk, "full", True)
        loop.call_later(10.0 + full, setattr, disk, "full", False)
    loop.call_later(seconds, control.request_stop)
    await control.run()
    reports.cancel()
    if not killed:
        await control.flush()
    return disk
