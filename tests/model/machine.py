"""Ledger, shell and core under all faults at once, as a Hypothesis machine.

Every rule is something that happens in the world; what the controller makes of it is its own. The
promises are looked at every few seconds of virtual time (`World.check`), and each example ends
with the end of all faults, the wanted state, and an empty account (`Everything.teardown`).
"""

from __future__ import annotations

import random
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis.stateful import initialize, rule

from elasticd.core.events import (
    DownRequested,
    DrainRequested,
    EndpointBroken,
    HoldReleased,
    ScaleHeld,
    ServeRequested,
    UndrainRequested,
)
from elasticd.errors import UsageError
from elasticd_providers.fake.faults import CallFault, Faults
from tests.model.around import Setting
from tests.model.books import LEDGER
from tests.model.catalog import POOLS, caps, fleet, models
from tests.model.effects import (
    AGENT,
    BUYING,
    ENDING,
    HARD,
    ITS_OWN,
    LOOKING,
    POINTS,
    USED,
    WORLD,
    effects_of,
)
from tests.model.machine_base import PICK, POOL, Everything
from tests.model.world import World

THEN = st.sampled_from([0.0, 2.0, 12.0])
"""Seconds that pass after something has happened."""

HIDDEN = {
    "lagging": {"lookup_lag": 8.0, "list_lag": 25.0},
    "short-lived": {"spot_lifetime": 2.0, "ended_lag": 30.0, "ended_lookup_lag": 60.0},
}
"""Vices that make it hard to tell what became of a call."""

CAPS = st.sampled_from([(None, None), (500_000, None), (1_300_000, None), (None, 20_000)])
FOREIGN = "another-ledger"


def wrong_calls(operations: tuple[str, ...]) -> st.SearchStrategy[list[CallFault]]:
    """Up to three entries of the vendor's script."""
    fault = st.builds(
        lambda what, times, seconds, skip: CallFault(
            operation=what[0],
            effect=what[1],
            times=times,
            seconds=seconds,
            skip=skip,
            retry_after=seconds if what[1] == "throttled" and skip else None,
        ),
        st.sampled_from(HARD[operations])
        | st.sampled_from(ITS_OWN[operations])
        | st.sampled_from(effects_of(operations)),
        times=st.sampled_from([1, 1, 2, None]),
        seconds=st.sampled_from([3.0, 30.0, 100.0]),
        skip=st.sampled_from([0, 0, 1]),
    )
    return st.lists(fault, min_size=1, max_size=3)


class AllAtOnce(Everything):
    """Two pools, two models, a budget in two currencies, and whatever can go wrong."""

    @initialize(
        setting=st.builds(
            Setting,
            shared=st.booleans(),
            tokens=st.booleans(),
            quota=st.sampled_from([None, None, 2]),
            cheap_yuan=st.booleans(),
            evening=st.booleans(),
        ),
        patient=st.booleans(),
        seconds=st.sampled_from([0.0, 30.0]),
        luck=st.integers(0, 3),
    )
    def begin(self, setting: Setting, patient: bool, seconds: float, luck: int) -> None:
        """`patient`: the adapter sets no limit to its calls; `luck` decides on jitter."""
        random.seed(luck)
        self.world = World(setting)
        self.world.wire_timeout = 1000.0 if patient else 20.0
        self.world.keep_up()
        self.world.run(seconds)

    # The vendor.

    @rule(seconds=st.sampled_from([1.0, 8.0, 45.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.did("time passes", seconds)

    @rule()
    def things_go_on(self) -> None:
        self.did("things go on", 12.0)

    @rule(
        pool=POOL, vice=st.sampled_from(sorted(WORLD)), how=PICK, count=st.integers(0, 4), then=THEN
    )
    def the_cloud_has_a_vice(self, pool: str, vice: str, how: int, count: int, then: float) -> None:
        """Perhaps just when more is needed."""
        worse = WORLD[vice][how % len(WORLD[vice])]
        self.world.books.tell(f"{pool}: {vice} = {worse}")
        more = {"spot_notice": 15.0 if how % 2 else None} if vice == "spot_lifetime" else {}
        self.world.accounts[pool].suffer(**{vice: worse}, **more)
        if count:
            self._need(count)
        self.did("the cloud has a vice", then)

    def _need(self, count: int) -> None:
        """So many replicas of the one model, and perhaps the other one, too."""
        self.world.say(ServeRequested("test"))
        self.world.demand = {"m": 2 * count, "z": 3 * max(0, count - 2)}
        self.world.say(ScaleHeld("m", count, 60.0, "test"))

    @rule(pool=POOL, wrong=wrong_calls(LOOKING), afresh=st.booleans(), then=THEN)
    def looking_goes_wrong(
        self, pool: str, wrong: list[CallFault], afresh: bool, then: float
    ) -> None:
        self._mislead(pool, wrong, afresh)
        self.did("looking goes wrong", then)

    @rule(
        pool=POOL,
        wrong=wrong_calls(BUYING),
        afresh=st.booleans(),
        hidden=st.sampled_from(["", "lagging", "short-lived"]),
        count=st.integers(1, 4),
        then=THEN,
    )
    def buying_goes_wrong(
        self, pool: str, wrong: list[CallFault], afresh: bool, hidden: str, count: int, then: float
    ) -> None:
        """Just when more is needed, and perhaps with machines that do not show for a while, or
        that have ended before anybody knows of them."""
        unanswered = [CallFault(operation="create", effect="hang_after")]
        self._mislead(pool, [*unanswered * (hidden == "short-lived"), *wrong], afresh)
        if hidden:
            self.world.books.tell(f"{pool}: its machines are {hidden}")
            self.world.accounts[pool].suffer(**HIDDEN[hidden])
        self._need(count)
        self.did("buying goes wrong", then)

    @rule(pool=POOL, wrong=wrong_calls(ENDING), afresh=st.booleans(), which=PICK, then=THEN)
    def ending_goes_wrong(
        self, pool: str, wrong: list[CallFault], afresh: bool, which: int, then: float
    ) -> None:
        """Just when something has to end."""
        self._mislead(pool, wrong, afresh)
        known = self.machine(which, pool)
        if known is not None and known.identity is not None:
            self.world.say(DrainRequested(known.identity.node_id, 0.0, "test"))
        self.did("ending goes wrong", then)

    def _mislead(self, pool: str, wrong: list[CallFault], afresh: bool) -> None:
        """`afresh`: what went wrong before does not any more, and nobody else is in the way."""
        account = self.world.accounts[pool]
        if afresh:
            account.suffer(**dict(Faults()))
            self.world.end_foreign(pool)
        for fault in wrong:
            told = f"{fault.operation} will be {fault.effect}, {fault.times} times"
            self.world.books.tell(f"{pool}: {told}")
            account.mislead(fault)

    @rule(pool=POOL, then=THEN)
    def the_vendor_gets_well(self, pool: str, then: float) -> None:
        account = self.world.accounts[pool]
        if account.ill:
            self.world.books.tell(f"{pool}: well")
            account.suffer(**dict(Faults()))
            self.did("the vendor gets well", then)

    @rule(which=PICK, notice=st.sampled_from([None, 0.0, 20.0, 120.0]), then=THEN)
    def the_market_takes_a_machine(self, which: int, notice: float | None, then: float) -> None:
        known = self.machine(which)
        if known is not None:
            self.world.take(known, notice)
            self.did("taken without notice" if notice is None else "taken with notice", then)

    @rule(which=PICK, then=THEN)
    def the_market_changes_its_mind(self, which: int, then: float) -> None:
        going = [k for k in self.world.books.ours() if k.machine.reclaim_at is not None]
        if going:
            known = going[which % len(going)]
            known.account.cloud.withdraw(known.machine.id)
            self.did("withdrawn", then)

    @rule(pool=POOL, whose=st.sampled_from(["a stranger's", "another ledger's", "ours"]), n=PICK)
    def a_machine_turns_up(self, pool: str, whose: str, n: int) -> None:
        node = f"n-{whose[0]}-{n}"
        if any(k.machine.name.endswith(node) for k in self.world.books.known.values()):
            return
        if whose == "a stranger's":
            self.world.plant(pool, node=node)
        else:
            ledger = LEDGER if whose == "ours" else self._another_ledger()
            self.world.plant(pool, ledger, node)
        self.did(f"a machine turns up, {whose}", 2.0)

    @rule(pool=POOL, adopt=st.booleans(), then=THEN)
    def another_ledgers_machines_are_seen_to(self, pool: str, adopt: bool, then: float) -> None:
        world = self.world
        if not world.foreign_in(pool):
            world.plant(pool, self._another_ledger(), f"n-seen-to-{len(world.books.known)}")
            self.did("a machine turns up, another ledger's", 12.0)
        found = world.foreign_in(pool)
        ledger = next((k.identity.ledger_id for k in found if k.identity is not None), "")
        if not adopt:
            world.end_foreign(pool)
            self.did("ended by their owner", then)
        elif world.adopt(ledger):
            self.did("adopted", then)

    def _another_ledger(self) -> str:
        """One that goes on to rent after it was adopted is a rival, and another story."""
        return f"{FOREIGN}-{len(self.world.books.adopted)}"

    # The cluster.

    @rule(
        kind=st.sampled_from(AGENT),
        seconds=st.sampled_from([5.0, 40.0, 150.0]),
        then=THEN,
    )
    def the_agent_is_not_well(self, kind: str, seconds: float, then: float) -> None:
        self.world.books.tell(f"the agent is {kind} for {seconds:g} s")
        self.world.cluster.be(kind, seconds)
        self.did("the agent is not well", then)

    @rule(which=PICK, then=THEN)
    def an_engine_dies(self, which: int, then: float) -> None:
        engines = self.world.cluster.engines
        if engines:
            engines[sorted(engines)[which % len(engines)]].broken = "exit -9"
            self.world.cluster.poke()
            self.did("an engine dies", then)

    @rule(which=PICK, then=THEN)
    def a_connection_breaks(self, which: int, then: float) -> None:
        engines = sorted(self.world.cluster.engines)
        if engines and self.world.say(EndpointBroken(engines[which % len(engines)], 1, "reset")):
            self.did("a connection breaks", then)

    @rule(differ=st.booleans())
    def new_machines_have_other_versions(self, differ: bool) -> None:
        self.world.new_machines_differ = differ
        self.did("new machines differ" if differ else "new machines do not differ")

    @rule(which=PICK, hidden=st.booleans(), then=THEN)
    def a_machine_hides_its_gpus(self, which: int, hidden: bool, then: float) -> None:
        known = self.machine(which)
        if not hidden:
            self.world.cluster.gpuless.clear()
        elif known is not None and known.identity is not None:
            self.world.cluster.gpuless.add(known.identity.node_id)
        self.world.cluster.poke()
        self.did("gpus hide" if hidden else "gpus show", then)

    # The controller's own host.

    @rule(
        at=st.sampled_from(POINTS),
        nth=st.sampled_from([1, 1, 1, 2]),
        afresh=st.booleans(),
        which=PICK,
        count=st.integers(1, 4),
        down=st.sampled_from([0.0, 0.0, 7.0, 90.0, 400.0]),
    )
    def the_controller_is_killed(
        self, at: str, nth: int, afresh: bool, which: int, count: int, down: float
    ) -> None:
        """While it rents or ends something, as the point asks for; `afresh`: all is well then."""
        world, known = self.world, self.machine(which)
        if world.life is None:
            return
        if afresh:
            world.get_well()
        world.doom.at, world.doom.left = at, nth
        if not at.endswith(("terminate", "stop")):
            self._need(count)
        elif known is not None and known.identity is not None:
            world.say(DrainRequested(known.identity.node_id, 0.0, "test"))
        world.leave_down()
        end = world.now + 25.0
        while world.life is not None and world.now < end:
            world.run(2.0)
        USED[f"killed {at}" if world.life is None else "killed anywhere"] += 1
        world.kill()
        world.run(down)
        world.keep_up()
        self.did("the controller is killed")

    @rule(rounds=st.integers(0, 12), down=st.sampled_from([0.0, 30.0]))
    def the_controller_is_killed_at_once(self, rounds: int, down: float) -> None:
        world = self.world
        if world.life is not None:
            world.timers.loop.run_rounds(rounds)
            world.leave_down()
            world.kill()
            world.run(down)
            world.keep_up()
            self.did("killed anywhere")

    @rule(down=st.sampled_from([0.0, 20.0]))
    def the_controller_is_restarted_in_order(self, down: float) -> None:
        world = self.world
        if world.life is not None:
            world.leave_down()
            world.stop()
            world.run(down)
            world.keep_up()
            self.did("restarted in order")

    @rule(seconds=st.sampled_from([3.0, 30.0, 120.0]), then=THEN)
    def the_disk_is_full(self, seconds: float, then: float) -> None:
        self.world.books.tell(f"the disk takes nothing for {seconds:g} s")
        self.world.fill_disk(seconds)
        self.did("the disk is full", then)

    @rule(seconds=st.sampled_from([0.0, 0.3, 8.0]))
    def the_disk_is_slow(self, seconds: float) -> None:
        self.world.commit_seconds = seconds
        self.did("the disk is slow" if seconds else "the disk is quick")

    @rule(seconds=st.sampled_from([-3600.0, 3600.0, 86_400.0, -90_000.0]), then=THEN)
    def the_clock_is_set(self, seconds: float, then: float) -> None:
        self.world.clock_set_by = max(self.world.clock_set_by + seconds, 0.0)
        self.did("the clock is set", then)

    # People.

    @rule(model=st.sampled_from(["m", "z"]), load=st.integers(0, 7), then=THEN)
    def demand_changes(self, model: str, load: int, then: float) -> None:
        self.world.demand[model] = load
        self.did("demand changes", then)

    @rule(serve=st.booleans(), then=THEN)
    def somebody_asks_for_down_or_to_serve(self, serve: bool, then: float) -> None:
        event = ServeRequested("test") if serve else DownRequested("test")
        if self.world.say(event):
            self.did("serve" if serve else "down", then)

    @rule(which=PICK, seconds=st.sampled_from([0.0, 20.0, 300.0]), back=st.booleans(), then=THEN)
    def somebody_drains_a_node(self, which: int, seconds: float, back: bool, then: float) -> None:
        known = self.machine(which)
        if known is None or known.identity is None:
            return
        node_id = known.identity.node_id
        event = (
            UndrainRequested(node_id, "test") if back else DrainRequested(node_id, seconds, "test")
        )
        if self.world.say(event):
            self.did("undrain" if back else "drain", then)

    @rule(
        count=st.integers(0, 4),
        seconds=st.sampled_from([None, 30.0]),
        back=st.booleans(),
        then=THEN,
    )
    def somebody_holds_a_model(
        self, count: int, seconds: float | None, back: bool, then: float
    ) -> None:
        event = HoldReleased("m", "test") if back else ScaleHeld("m", count, seconds, "test")
        if self.world.say(event):
            self.did("hold released" if back else "hold", then)

    @rule(caps_=CAPS, then=THEN)
    def the_budget_changes(self, caps_: tuple[int | None, int | None], then: float) -> None:
        spec = replace(self.world.wishes.spec, budget=caps(*caps_))
        assert self.world.reload(spec) == ""
        self.did("the budget changes", then)

    @rule(
        spec=st.sampled_from(["one", "two"]),
        most=st.integers(1, 3),
        least=st.integers(0, 1),
        then=THEN,
    )
    def the_models_change(self, spec: str, most: int, least: int, then: float) -> None:
        wanted = models(spec, most, least)
        assert self.world.reload(replace(self.world.wishes.spec, models=wanted)) == ""
        self.did("the models change", then)

    @rule(
        pool=POOL,
        max_nodes=st.sampled_from([0, 1, 2, 3]),
        every=st.sampled_from([10.0, 6.0]),
        then=THEN,
    )
    def a_pool_changes(self, pool: str, max_nodes: int, every: float, then: float) -> None:
        """Another period of listing means another provider, in the middle of its calls."""
        spec = self.world.wishes.spec
        pools = tuple(replace(p, max_nodes=max_nodes) if p.name == pool else p for p in spec.pools)
        assert self.world.reload(replace(spec, pools=pools), every=every) == ""
        self.did("a pool closes" if max_nodes == 0 else "a pool changes", then)

    @rule(pool=POOL, readable=st.sampled_from([True, True, False]), then=THEN)
    def a_pool_is_taken_out_or_put_back(self, pool: str, readable: bool, then: float) -> None:
        if not readable:
            if self.world.life is not None:
                self.world.reread(UsageError("line 3: not a number"))
                self.did("the configuration cannot be read", then)
            return
        spec = self.world.wishes.spec
        without = tuple(p for p in spec.pools if p.name != pool)
        back = fleet().pools if len(spec.pools) < len(POOLS) else without
        problem = self.world.reload(replace(spec, pools=back))
        if problem:
            assert "still has" in problem, problem
            self.did("a pool with machines is kept", then)
        else:
            self.did("a pool comes or goes", then)
