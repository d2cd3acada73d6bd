"""What the fleet has cost since the day began, by pool and by model.

Counted at the worst-case price from the moment a launch is asked for until the machine is known
to be gone, also through the time in which no controller ran. Whole numbers only: millionths of a
currency per hour, times milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elasticd.core.lifecycle import NODE_PAID, NodePhase
from elasticd.core.records import Node

if TYPE_CHECKING:
    from elasticd.core.state import State

MS_PER_HOUR = 3_600_000

_PERIOD = 10.0
"""Seconds between two sums over the fleet; a machine that goes in between is settled by itself."""

Sums = dict[tuple[str, str], int]
"""Millionths times milliseconds, by pool or model and currency."""


@dataclass(slots=True)
class Spend:
    """`began`, `ends`: the day, `None` while nobody has told. `until`: counted up to here.

    `settled`: something has been counted for the last time, which no row would tell of again.
    """

    began: float | None = None
    ends: float | None = None
    until: float | None = None
    pools: Sums = field(default_factory=dict)
    models: Sums = field(default_factory=dict)
    settled: bool = False

    def today(self) -> dict[str, int]:
        """Millionths by currency, rounded up."""
        total: dict[str, int] = {}
        for (_, currency), amount in self.pools.items():
            total[currency] = total.get(currency, 0) + amount
        return {currency: -(-amount // MS_PER_HOUR) for currency, amount in total.items()}

    def to_doc(self) -> dict[str, Any]:
        """As a row of the ledger."""
        return {
            "began": self.began,
            "ends": self.ends,
            "until": self.until,
            "pools": [[*key, amount] for key, amount in sorted(self.pools.items())],
            "models": [[*key, amount] for key, amount in sorted(self.models.items())],
        }

    @classmethod
    def from_doc(cls, doc: dict[str, Any]) -> Spend:
        """The inverse of `to_doc`."""
        return cls(
            began=doc["began"],
            ends=doc["ends"],
            until=doc["until"],
            pools={(str(n), str(c)): int(a) for n, c, a in doc["pools"]},
            models={(str(n), str(c)): int(a) for n, c, a in doc["models"]},
        )


def node_price(node: Node) -> tuple[int, str] | None:
    """Worst-case price per hour in millionths of a currency; `None` where none is known."""
    offered = (node.offering,) if node.offering is not None else node.offerings
    if not offered:
        return None
    dearest = max(offered, key=lambda o: o.price_micros)
    return dearest.price_micros, dearest.currency


def start_day(state: State, began: float, ends: float) -> None:
    """A new day: what was spent belongs to the old one. The same day again changes its end only."""
    spend = state.spend
    if spend.began is None or began >= (spend.ends if spend.ends is not None else began):
        _count(state, began)
        spend.pools, spend.models = {}, {}
        spend.until = began if spend.until is None else max(began, spend.until)
        spend.began = began
    spend.ends = ends


def count_spend(state: State, now: float) -> None:
    """Adds what has been spent since the last time."""
    spend = state.spend
    if spend.until is None:
        spend.until = now
    elif now - spend.until >= _PERIOD:
        if spend.ends is not None and spend.until < spend.ends <= now:
            # Nobody has told of the new day yet: its spend counts from its beginning all the same.
            start_day(state, spend.ends, spend.ends + 86_400.0)
        _count(state, now)


def _count(state: State, now: float) -> None:
    spend = state.spend
    if spend.until is None or now <= spend.until:
        return
    since, spend.until = spend.until, now
    for node in state.fleet.nodes(NODE_PAID):
        _count_node(state, node, since, now)
    for pool in state.pools.values():
        for orphan in pool.orphans.values():
            offering = orphan.instance.offering
            if offering is not None:
                ms = int((now - max(since, orphan.since)) * 1000)
                _add(spend.pools, pool.spec.name, offering.currency, offering.price_micros * ms)


def settle(state: State, node: Node, now: float) -> None:
    """Counts what a machine has cost since the last sum: it is going."""
    if state.spend.until is not None and node.phase in NODE_PAID:
        _count_node(state, node, state.spend.until, now)
        state.spend.settled = True


def _count_node(state: State, node: Node, since: float, now: float) -> None:
    price = node_price(node)
    if price is None or not price[0]:
        return
    began = node.launched_at if node.phase is NodePhase.REQUESTED else node.created
    if began is None:
        return
    ms = int((now - max(since, began)) * 1000)
    if ms > 0:
        _share(state, node, price[0] * ms, price[1])


def _share(state: State, node: Node, amount: int, currency: str) -> None:
    """A machine's cost by the GPUs that its replicas hold; what is idle is the pool's alone."""
    _add(state.spend.pools, node.pool, currency, amount)
    gpus = max(node.expected_gpus, 1)
    for replica in state.fleet.live_on(node.id):
        held = min(replica.gpus, gpus)
        _add(state.spend.models, replica.model, currency, amount * held // gpus)


def _add(sums: Sums, name: str, currency: str, amount: int) -> None:
    if amount > 0:
        sums[name, currency] = sums.get((name, currency), 0) + amount
