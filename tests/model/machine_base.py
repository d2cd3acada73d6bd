"""What the rules stand on: a world, the picks that rules make in it, and how every example ends."""

from __future__ import annotations

import sys

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from elasticd.core.events import DownRequested, HoldReleased, ServeRequested
from elasticd.core.lifecycle import LIVE, NODE_PAID
from tests.model.books import Known
from tests.model.catalog import POOLS, fleet, models
from tests.model.effects import USED, took
from tests.model.world import World

SETTLED_WITHIN = 900.0
"""Seconds from the end of all faults until what is wanted is there, and nothing else."""

STEADY = 40.0
"""Seconds for which it must then stay so."""

DOWN_WITHIN = 300.0
"""Seconds from `down` until nothing is paid for."""

LAST_SPEC, LAST = "last", "m-last"
"""The version of the model that is wanted in the end: its name and its hash."""

PICK = st.integers(0, 5)
POOL = st.sampled_from(POOLS)


class Everything(RuleBasedStateMachine):
    """The world, which an initial rule must make, and the end that comes to each."""

    world: World

    def did(self, what: str, seconds: float = 0.0) -> None:
        """Counts a rule that did something; then so much time passes."""
        USED[what] += 1
        self.world.run(seconds)

    def machine(self, which: int, pool: str = "") -> Known | None:
        """One of ours, of any pool or of that one."""
        books = self.world.books
        ours = books.of(pool) if pool else books.ours()
        return ours[which % len(ours)] if ours else None

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None and not self.world.books.broken:
                USED["examples"] += 1
                self._end()
        finally:
            self.world.close()

    def _end(self) -> None:
        """Once faults stop, what is wanted comes by itself; then everything can be given back."""
        world = self.world
        world.books.tell("— all faults stop —")
        world.doom.at = ""
        world.heal()
        world.keep_up()
        world.run(1.0)
        for name in POOLS:  # an adoption that no disk took died with the life that was asked
            world.end_foreign(name)
        world.say(ServeRequested("test"))
        for name in ("m", "z"):
            world.say(HoldReleased(name, "test"))
        assert world.reload(fleet(wanted=models(LAST_SPEC))) == ""
        took("settled", world.until(self._settled, SETTLED_WITHIN, "the wanted state"))
        before = [known.machine.id for known in world.books.ours()]
        world.run(STEADY)
        if not self._settled() or before != [known.machine.id for known in world.books.ours()]:
            world.books.fail(f"it did not stay as it was wanted\n{world.picture()}")
        world.say(DownRequested("test"))
        took("given back", world.until(self._nothing_left, DOWN_WITHIN, "everything given back"))

    def _settled(self) -> bool:
        """One replica of the one model serves, on the one machine that there is."""
        life, books = self.world.life, self.world.books
        if life is None or life.tables.current is None:
            return False
        fleet = life.core.state.fleet
        open_ones = [
            e.node_id
            for m in life.tables.current.models
            for e in m.endpoints
            if e.tier.value == "open"
        ]
        return (
            len(open_ones) == len(books.ours()) == len(fleet.nodes(NODE_PAID)) == 1
            and [r.spec_hash for r in fleet.replicas(LIVE)] == [LAST]
            and self.world.cluster.serving(open_ones[0], 0.0)
            and not any(p.orphans for p in life.core.state.pools.values())
            and not any(a.delivering for a in self.world.accounts.values())
        )

    def _nothing_left(self) -> bool:
        life = self.world.life
        assert life is not None
        return not self.world.books.ours() and not life.core.state.fleet.nodes(NODE_PAID)
