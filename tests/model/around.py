"""Everything around a controller: accounts, cluster, disk, clock, wishes, and whoever counts."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.core.specs import FleetSpec
from elasticd.provider import PoolContext, ProviderPlugin
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.observer import WatchPeriods
from elasticd_providers.fake import FakeOptions, FakeProvider, create_fake
from elasticd_providers.fake.calls import Call
from elasticd_providers.fake.catalog import Offer, Settings
from elasticd_providers.fake.faults import CallFault, Faults
from elasticd_providers.fake.identity import Identity
from elasticd_providers.fake.orders import Order
from tests.model.books import CLUSTER, LEDGER, VISIBILITY, Books, Known
from tests.model.catalog import DOLLARS, POOLS, YUAN, fleet
from tests.model.cluster import Cluster
from tests.model.loop import ModelLoop, Timers
from tests.model.seams import seams, state_dir
from tests.model.vendor import Account, Done, ModelWire
from tests.runtime.world import Plain

MORNING, EVENING = 1_000.0, 86_000.0
"""When a world begins, in seconds: far from the end of a day, or soon before it."""

_LONGEST_PAUSE = 60.0
"""Seconds up to which lists are asked for less and less often while a provider fails."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What differs from world to world.

    `shared`: both pools see one account, which rents in both currencies; `tokens`: it takes client
    tokens; `quota`: machines of an account; `cheap_yuan`: of like machines those paid in yuan are
    the cheaper ones; `evening`: the day turns soon.
    """

    shared: bool = False
    tokens: bool = False
    quota: int | None = None
    cheap_yuan: bool = False
    evening: bool = False


class Around:
    """What outlives every controller."""

    def __init__(self, setting: Setting) -> None:
        self._context = contextlib.ExitStack()
        self.faults_of_ours: list[str] = []
        self._context.enter_context(seams(self.faults_of_ours.append))
        self.state_dir = self._context.enter_context(state_dir())
        self.timers = Timers(ModelLoop(EVENING if setting.evening else MORNING))
        self.books = Books(lambda: self.timers.now)
        self._tokens = setting.tokens
        self.accounts = self._open_accounts(setting)
        self.cluster = Cluster(self.timers, self.books.known.values)
        self._plugin = ProviderPlugin(options=FakeOptions, create=self._provider)
        self.wishes = Plain(fleet(), self.configs(fleet()))
        self.demand = dict.fromkeys(("m", "z"), 0)
        self.wire_timeout, self.commit_seconds, self.disk_full_until = 20.0, 0.0, 0.0
        self.clock_set_by = 0.0
        self.new_machines_differ = False

    @property
    def now(self) -> float:
        """Seconds."""
        return self.timers.now

    def wall(self) -> float:
        """The host's clock, which can be set."""
        return self.now + self.clock_set_by

    def close(self) -> None:
        """Leaves nothing behind."""
        self.timers.loop.bury()
        self._context.close()

    def configs(self, spec: FleetSpec, every: float = 10.0) -> dict[str, PoolConfig]:
        """A provider for each pool, listed every so many seconds."""
        told = {"url": "http://127.0.0.1", "visibility": f"{VISIBILITY:g}s"}
        options = FakeOptions.model_validate({**told, "client_tokens": self._tokens})
        periods = WatchPeriods(instances=every, offerings=30.0, longest=_LONGEST_PAUSE)
        limits = CallLimits(longest_pause=_LONGEST_PAUSE)
        config = PoolConfig(self._plugin, options, periods=periods, limits=limits)
        return dict.fromkeys((p.name for p in spec.pools), config)

    def get_well(self) -> None:
        """Vendors, agent and disk do as they should."""
        for account in self.accounts.values():
            account.suffer(**dict(Faults()))
        self.commit_seconds = self.disk_full_until = 0.0
        self.new_machines_differ = False
        self.cluster.recover()

    def heal(self) -> None:
        """No fault any more, of whatever kind; machines of other ledgers are ended by them."""
        self.get_well()
        for account in self.accounts.values():
            settings = account.cloud.settings
            account.cloud.settings = settings.model_copy(update={"quota": None})
        for known in self.books.ours():
            known.machine.reclaim_at = None
        for name in POOLS:
            self.end_foreign(name)
        self.demand = dict.fromkeys(self.demand, 0)

    def fill_disk(self, seconds: float) -> None:
        """Nothing can be written for so long."""
        self.disk_full_until = max(self.disk_full_until, self.now + seconds)

    def plant(
        self, name: str, ledger: str = "", node: str = "n-of-nobody", cluster: str = CLUSTER
    ) -> Known:
        """A machine that the controller did not rent; without a ledger it is a stranger's."""
        account = self.accounts[name]
        offer = account.cloud.settings.offers[0]
        who = Identity(cluster, name, ledger, node) if ledger else None
        account.cloud.plant(
            Order(
                name=f"web-server-{node}" if who is None else who.name,
                zone=offer.zone,
                machine_type=offer.machine_type,
                tags={} if who is None else who.tags,
            )
        )
        self.cluster.poke()
        return self.books.planted(account, "stray" if ledger == LEDGER else "")

    def take(self, known: Known, notice: float | None) -> None:
        """The market takes a machine, so many seconds after a notice, or without one."""
        self.books.tell(f"the market takes {known.machine.id}, notice {notice}")
        known.account.cloud.reclaim(known.machine.id, notice)
        self.cluster.poke()

    def foreign_in(self, name: str) -> list[Known]:
        """Machines of our cluster's name and another ledger, which keep a pool from everything."""
        return [
            k
            for k in self.books.foreign()
            if k.identity is not None
            and (k.identity.cluster, k.identity.pool) == (CLUSTER, name)
            and k.machine.costs(self.now)
        ]

    def end_foreign(self, name: str) -> None:
        """Whoever owns them ends them."""
        for known in self.foreign_in(name):
            self.books.tell(f"{name}: {known.machine.id} is ended by its owner")
            known.machine.ended_at = self.now

    def calling(self, account: Account, pool: str, call: Call, fault: CallFault | None) -> None:
        """As `Watcher`."""
        self.books.calling(account, pool, call, fault)

    def carried_out(self, account: Account, pool: str, call: Call, done: Done) -> None:
        """As `Watcher`: what was made or ended is seen in the cluster, too."""
        self.books.carried_out(account, pool, call, done)
        if call.operation == "create" and self.new_machines_differ:
            self.cluster.mismatched.add(call.target.rpartition("/")[2])
        if call.operation in ("create", "terminate"):
            self.cluster.poke()
            self.books.check_limits()

    def point(self) -> Callable[[str], Awaitable[None]]:
        """Where the controller that lives now may die."""
        raise NotImplementedError

    def _open_accounts(self, setting: Setting) -> Mapping[str, Account]:
        def opened(name: str, rented: tuple[Offer, ...]) -> Account:
            settings = Settings(
                offers=rented,
                tokens=setting.tokens,
                quota=setting.quota,
                page_size=1,
                boot_seconds=5.0,
                stop_seconds=3.0,
            )
            return Account(name, self.timers, settings, self)

        yuan = YUAN[setting.cheap_yuan]
        if setting.shared:
            return dict.fromkeys(POOLS, opened("one", (*DOLLARS, *yuan)))
        return {"blue": opened("blue's", DOLLARS), "green": opened("green's", yuan)}

    def _provider(self, context: PoolContext, options: Any) -> FakeProvider:
        """The real adapter of a pool, over the model's wire."""
        account = self.accounts[context.pool]
        wire = ModelWire(account, context.pool, self.wire_timeout, self.point())
        return create_fake(context, options, wire=wire, wall=lambda: self.now)
