"""Which replica takes the next request: pure bookkeeping of slots and of replicas set aside.

Owns the in-flight count and the standing of every replica. Knows nothing of queues, sockets or
the clock: `now` is an argument, in seconds.

* Late binding: only a replica with a free slot is chosen; the least loaded wins, ties by id.
* A `last_resort` endpoint is taken only when no open one could be used at all, full or not.
* Passive ejection: a replica whose connection broke, or that refuses, is set aside for a short
  time that doubles with each failure in a row, and then on trial: the next request goes to it
  alone, until it answers or a moment has passed. It is as good as new when it answers, or when the
  table closes and reopens it.
* A replica that a request has tried is avoided while any other usable one exists, full or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from elasticd.routing_table import Endpoint, ModelRoute, ReplicaKey, RoutingTable, Tier

_OPEN, _CLOSED = Tier.OPEN, Tier.CLOSED
_TRIED, _WORST = 2, 4
"""Groups of replicas, best first: open, last resort, both again for those that the request has
tried. Only the best group that has a member counts, full or not."""


@dataclass(frozen=True, slots=True)
class Ejection:
    """How long a failing replica is set aside: `first` seconds, then doubled up to `longest`.

    `trial`: seconds that the first request after it has the replica to itself, unless it answers
    before. A replica that is healthy again serves all within `longest` and one answer.
    """

    first: float = 0.5
    longest: float = 1.5
    trial: float = 0.5

    def period(self, failures: int) -> float:
        """Seconds after the given number of failures in a row (at least one)."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class _Standing:
    """One replica. `failures` counts since it last answered. `on_trial`: it is not set aside for
    a failure of its own any more, but for the one request that tries it."""

    in_flight: int = 0
    failures: int = 0
    aside_until: float = 0.0
    on_trial: bool = False

    def clear(self) -> None:
        """As good as new."""
        self.failures, self.aside_until, self.on_trial = 0, 0.0, False


_LEAST_WEIGHT = 1e-6
"""Of a replica whose weight is zero."""

_NEW = _Standing()
"""That of a replica of which nothing is known. Never changed."""


class Router:
    """Counts what runs on each replica and picks the next one."""

    def __init__(self, ejection: Ejection | None = None) -> None:
        self._ejection = ejection or Ejection()
        self._standings: dict[ReplicaKey, _Standing] = {}
        self._open: frozenset[ReplicaKey] = frozenset()

    def choose(
        self, route: ModelRoute, tried: Set[ReplicaKey], now: float, spec_hash: str = ""
    ) -> Endpoint | None:
        """The replica for one request now; `None` while every replica it may use is full.

        `spec_hash`: of what the replica must be; empty: of any.
        """
        best, best_group, least = None, _WORST, 0.0
        standing_of = self._standings.get
        for endpoint in route.endpoints:
            tier = endpoint.tier
            if tier is _CLOSED or (spec_hash and endpoint.spec_hash != spec_hash):
                continue
            key, slots = endpoint.replica_key, endpoint.slots
            standing = standing_of(key, _NEW)
            group = 0 if tier is _OPEN else 1
            if tried and key in tried:
                group += _TRIED
            if slots < 1 or standing.aside_until > now or group > best_group:
                continue
            if group < best_group:
                best, best_group = None, group
            running = standing.in_flight
            if running < slots:
                load = running / (slots * (endpoint.weight or _LEAST_WEIGHT))
                if best is None or load < least or (load == least and key < best.replica_key):
                    best, least = endpoint, load
        return best

    def room(
        self, route: ModelRoute, beside: Set[ReplicaKey], now: float, spec_hash: str = ""
    ) -> int:
        """Free slots of the replicas of the route, but those `beside` and those that are to go.

        `spec_hash`: of what they must be; empty: of any.
        """
        return sum(
            max(0, endpoint.slots - self.in_flight(endpoint))
            for endpoint in self.able(route, now, beside)
            if endpoint.cut_at is None and spec_hash in ("", endpoint.spec_hash)
        )

    def usable(self, route: ModelRoute, now: float, beside: Set[ReplicaKey] = frozenset()) -> bool:
        """Whether any replica of the route, but those `beside`, takes requests, full or not."""
        return any(True for _ in self.able(route, now, beside))

    def able(
        self, route: ModelRoute, now: float, beside: Set[ReplicaKey] = frozenset()
    ) -> Iterator[Endpoint]:
        """The replicas of the route, but those `beside`, that take requests, full or not."""
        return (e for e in route.endpoints if self._able(e, now) and e.replica_key not in beside)

    def is_open(self, endpoint: Endpoint) -> bool:
        """Whether the last table lists the replica as one that takes requests."""
        return endpoint.replica_key in self._open

    def in_flight(self, endpoint: Endpoint) -> int:
        """Requests that run on the replica."""
        standing = self._standings.get(endpoint.replica_key)
        return standing.in_flight if standing else 0

    def take(self, endpoint: Endpoint, now: float) -> None:
        """Occupies one slot; the first one after a failure is a trial."""
        standing = self._standing(endpoint)
        if standing.in_flight >= endpoint.slots:
            raise ValueError(f"replica {endpoint.replica_id} has no free slot of {endpoint.slots}")
        standing.in_flight += 1
        if standing.failures and standing.aside_until <= now and not standing.on_trial:
            standing.on_trial = True
            standing.aside_until = now + self._ejection.trial

    def give_back(self, endpoint: Endpoint) -> None:
        """Frees one slot."""
        standing = self._standings[endpoint.replica_key]
        assert standing.in_flight > 0
        standing.in_flight -= 1

    def set_aside(self, endpoint: Endpoint, now: float) -> None:
        """The replica failed a request. Many streams that break at once are one failure."""
        standing = self._standing(endpoint)
        if standing.on_trial or standing.aside_until <= now:
            standing.on_trial = False
            standing.failures += 1
            standing.aside_until = now + self._ejection.period(standing.failures)

    def proven(self, endpoint: Endpoint) -> bool:
        """The replica answered a request: it is as good as new. Says whether it was not before."""
        standing = self._standings.get(endpoint.replica_key)
        if standing is None or not standing.failures:
            return False
        standing.clear()
        return True

    def next_return(self, routes: Iterable[ModelRoute], now: float) -> float | None:
        """When the first of the replicas that are set aside in these routes comes back."""
        times = [
            standing.aside_until
            for route in routes
            for endpoint in route.endpoints
            if (standing := self._standings.get(endpoint.replica_key)) is not None
            and standing.aside_until > now
        ]
        return min(times, default=None)

    def follow(self, table: RoutingTable) -> None:
        """Forgets what the table overrules: replicas it closed or no longer lists."""
        listed = {e.replica_key: e for m in table.models for e in m.endpoints}
        self._open = frozenset(key for key, e in listed.items() if e.tier is Tier.OPEN)
        for key, standing in list(self._standings.items()):
            endpoint = listed.get(key)
            if endpoint is None or endpoint.tier is Tier.CLOSED:
                standing.clear()
            if endpoint is None and standing.in_flight == 0:
                del self._standings[key]

    def loads(self, table: RoutingTable) -> dict[str, int]:
        """Requests in flight by replica id: all replicas of the table, and those that still run."""
        counts = {e.replica_id: 0 for m in table.models for e in m.endpoints}
        for (replica_id, _), standing in self._standings.items():
            if replica_id in counts or standing.in_flight:
                counts[replica_id] = counts.get(replica_id, 0) + standing.in_flight
        return counts

    def _standing(self, endpoint: Endpoint) -> _Standing:
        standing = self._standings.get(endpoint.replica_key)
        if standing is None:
            standing = self._standings[endpoint.replica_key] = _Standing()
        return standing

    def _able(self, endpoint: Endpoint, now: float) -> bool:
        if endpoint.tier is Tier.CLOSED or endpoint.slots < 1:
            return False
        standing = self._standings.get(endpoint.replica_key)
        return standing is None or standing.aside_until <= now
