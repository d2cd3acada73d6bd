"""A controller's lives in the middle of everything else, and the promises that are looked at."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from elasticd.core.events import AdoptRequested, Event
from elasticd.core.specs import FleetSpec
from tests.model.around import Around, Setting
from tests.model.books import Broken
from tests.model.catalog import POOLS
from tests.model.life import Doom, Life, QuickStore

T = TypeVar("T")

SLICE = 5.0
"""Seconds between two looks at the promises."""


class World(Around):
    """Everything of one example. `close` it."""

    def __init__(self, setting: Setting | None = None) -> None:
        super().__init__(setting or Setting())
        self.doom = Doom()
        self.life: Life | None = None
        self._wanted = True
        self._stores: list[QuickStore] = []
        self._well: dict[str, float | None] = dict.fromkeys(POOLS)

    # A controller's lives.

    def keep_up(self) -> None:
        """From now on one is started whenever there is none and the disk takes it."""
        self._wanted = True
        if self.life is None and self.now >= self.disk_full_until:
            self.timers.loop.run_until_complete(self._begin())

    def leave_down(self) -> None:
        """From now on none is started again."""
        self._wanted = False

    def kill(self) -> None:
        """SIGKILL: whatever it was doing ends here, and its loop with it."""
        life, old = self.life, self.timers.loop
        if life is None:
            return
        self.books.tell(f"— the controller is killed ({life.died_at or 'wherever it was'}) —")
        life.store.unlock()
        old.cut = True
        self.life, self.doom.at = None, ""
        self.timers.move()
        old.bury()

    def stop(self) -> None:
        """SIGTERM."""
        life, old = self.life, self.timers.loop
        if life is None:
            return
        self.books.tell("— the controller is stopped —")
        stopping = old.create_task(life.stop())
        while not stopping.done() and not life.died_at:
            old.run_for(0.5)
        if life.died_at:
            self.kill()
            return
        stopping.result()
        self.life = None
        self.timers.move()
        old.bury()

    def run(self, seconds: float) -> None:
        """Lets time pass; looks at the promises on the way. A death on the way is a death."""
        end = self.now + seconds
        while self.now < end - 0.001:
            self.timers.loop.run_for(min(SLICE, end - self.now))
            if self.life is not None and self.life.died_at:
                self.kill()
            self.check()

    def until(self, holds: Callable[[], bool], within: float, what: str) -> float:
        """Seconds until it holds; a broken promise if it does not in time."""
        begin = self.now
        while not holds():
            if self.now - begin > within:
                self.books.fail(f"not within {within:g} s: {what}\n{self.picture()}")
            self.run(SLICE)
        return self.now - begin

    def say(self, event: Event) -> bool:
        """To the controller, as over its admin socket; false: there is none."""
        if self.life is None:
            return False
        self.books.tell(f"> {event}")
        self.life.inbox.put(event)
        return True

    def adopt(self, ledger_id: str) -> bool:
        """As people do it; whether there was somebody to ask."""
        if self.life is None or not self.say(AdoptRequested(ledger_id, "test")):
            return False
        self.books.adopted.add(ledger_id)
        if self.ask(self.life.control.recorded()):
            self.books.promised.add(ledger_id)
        return True

    def ask(self, what: Awaitable[T]) -> T | None:
        """Lets the controller answer; `None` if it dies over it."""
        life = self.life
        assert life is not None

        async def answer() -> T:
            return await what

        task = self.timers.loop.create_task(answer())
        while not task.done() and not life.died_at:
            self.timers.loop.run_for(0.5)
        return task.result() if task.done() else None

    def reload(self, spec: FleetSpec, every: float = 10.0) -> str:
        """Reads a new configuration; why it was refused. Without a controller the next one does."""
        wishes = replace(self.wishes, spec=spec, pools=self.configs(spec, every))
        pools = ", ".join(f"{p.name} {p.max_nodes}" for p in spec.pools)
        budget = (spec.budget.max_per_hour, spec.budget.max_per_day)
        self.books.tell(f"> reload: {pools}, {spec.models[0].spec_hash}, caps {budget}")
        if self.life is None:
            self.wishes = wishes
            return ""
        told = self.reread(wishes)
        if told is None or not told["problem"]:
            self.wishes = wishes
        return "" if told is None else str(told["problem"])

    def reread(self, found: Any) -> Any:
        """What the controller says of what it finds, or meets, in its configuration."""
        assert self.life is not None
        self.wishes.next[:] = [found]
        told = self.ask(self.life.reloader.reload("test"))
        self.wishes.next.clear()
        return told

    # What must be.

    def check(self) -> None:
        """The promises that hold at every moment."""
        if self.books.broken:
            raise Broken(self.books.broken)
        if self._wanted:
            self.keep_up()
        if self.life is not None:
            self._check_life(self.life)
        self.books.check_limits()
        self.books.check_foreign()
        self._note_wellness()
        if self.life is not None:
            self.books.check_strays(self.life.core.stands_for, self._well)

    def picture(self) -> str:
        """What people would look at first."""
        if self.life is None:
            return "no controller"
        told = self.life.core.status(self.now)
        lines = [
            f"{n['id']} {n['pool']} {n['phase']} {n['instance_id']} {n['reason']}"
            for n in told["nodes"]
            if n["phase"] != "gone"
        ]
        for part in ("models", "pools"):
            lines += [str({k: v for k, v in row.items() if v}) for row in told[part]]
        lines += [f"{r['id']} {r['phase']} {r['cause']}" for r in told["replicas"][-8:]]
        lines += [f"{k.machine} {k.surplus}" for k in self.books.ours()]
        return "\n".join(lines)

    def close(self) -> None:
        """Ends everything."""
        self._wanted = False
        if self.life is not None:
            self.life.store.unlock()
            if self.life.task.done() and not self.life.task.cancelled():
                self.life.task.exception()  # told already, or hidden by what was told
        super().close()
        for store in self._stores:
            store.drop()

    def fill_disk(self, seconds: float) -> None:
        super().fill_disk(seconds)
        self._tell_disk()

    def point(self) -> Callable[[str], Awaitable[None]]:
        life = self.life
        if life is None:
            raise AssertionError("a provider is made while no controller lives")
        return life.point

    # How it is done.

    async def _begin(self) -> None:
        self.life = Life(self, self.doom)
        self._stores.append(self.life.store)
        self.books.tell("— a controller starts —")
        self.books.remembered(self.life.core.state.adopted)

    def _check_life(self, life: Life) -> None:
        self._tell_disk()
        if life.task.done() and not life.died_at:
            life.task.result()
            self.books.fail("the controller ended by itself")
        if faults := [*self.faults_of_ours, *self.timers.loop.faults]:
            self.books.fail(f"a fault of ours: {faults}")
        self.timers.loop.run_until_complete(self._told(life))

    def _tell_disk(self) -> None:
        if self.life is not None:
            self.life.store.read_only(self.now < self.disk_full_until)

    @staticmethod
    async def _told(life: Life) -> str:
        """The whole status, at any moment."""
        told = life.picture.status(
            life.control.health, life.watch, life.executor, life.reloader.summary()
        )
        return json.dumps(told)

    def _note_wellness(self) -> None:
        """Since when nothing keeps a pool's machines from being ended."""
        life, disk = self.life, self.now >= self.disk_full_until and not self.commit_seconds
        for name in POOLS:
            well = (
                life is not None
                and name in life.core.state.pools
                and disk
                and not self.accounts[name].ill
                and not self.foreign_in(name)
            )
            if not well or life is None:
                self._well[name] = None
            else:
                self._well[name] = max(self._well[name] or self.now, life.began)


def serve(world: World) -> World:
    """A controller with one machine on which one replica serves."""
    world.keep_up()
    world.run(30.0)
    assert len(world.books.ours()) == 1
    return world
