"""Puts wishes into force: the one place that tells core, pools, orders and resolver of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from elasticd.core.events import Configured
from elasticd.core.specs import FleetSpec
from elasticd.runtime.config import Wishes
from elasticd.runtime.orders import OrderMaker
from elasticd.runtime.performer import Identity
from elasticd.runtime.pools import Pools
from elasticd.runtime.ports import Emit
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.sources import SourceResolver
from elasticd.settings.day_start import DayStart


class Wiring:
    """Holds the wishes in force. `apply` never waits, so nothing happens in the middle of it."""

    def __init__(
        self,
        wishes: Wishes,
        identity: Identity,
        source_file: SourceFile,
        pools: Pools,
        orders: OrderMaker,
        emit: Emit,
        set_day: Callable[[DayStart], None] = lambda _: None,
    ) -> None:
        self._wishes = wishes
        self._identity = identity
        self._pools = pools
        self._orders = orders
        self._emit = emit
        self._set_day = set_day
        self._told: FleetSpec | None = None
        self.resolver = SourceResolver(source_file, wishes.hub(), self.retell)

    def apply(self, wishes: Wishes, changed: tuple[str, ...] = ()) -> None:
        """All of it, or an `ElasticdError` and nothing. `changed`: the paths, for the record."""
        change = self._pools.prepare(self._fleet(wishes), wishes.pools)
        self._wishes = wishes
        self._set_day(wishes.day_starts)
        self.resolver.set_sources(wishes.sources, wishes.hub())
        # Before the pools are watched: the core drops what it hears of a pool it does not know.
        self._tell(retry_failed=True, changed=changed)
        self._pools.apply(change)

    def retell(self) -> None:
        """Tells the core what is wanted, unless it knows: sources become known one by one."""
        self._tell(retry_failed=False)

    def _tell(self, retry_failed: bool, changed: tuple[str, ...] = ()) -> None:
        """`retry_failed`: an operator asked, so what had failed is tried again, come what may."""
        fleet = self._fleet(self._wishes)
        self._orders.learn(fleet, self._wishes.fetch_env, self._wishes.secret_env)
        again = self._told is not None and retry_failed
        if again or fleet != self._told:
            self._told = fleet
            self._emit(Configured(fleet, retry_failed=again, changed=changed))

    def _fleet(self, wishes: Wishes) -> FleetSpec:
        """Under the name our machines carry: a new one waits for a restart."""
        fleet = wishes.fleet(self.resolver.resolved(), self.resolver.problems())
        return replace(fleet, cluster=self._identity.cluster)
