"""Takes requests off replicas that are to go, in time; `traffic.leaving` decides which, and when.

Nothing of it costs a request more than one entry in a set, as long as its replica stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from elasticd.gateway.failures import ReplicaLeaving
from elasticd.gateway.rehearsal import Asides
from elasticd.routing_table import Endpoint, ReplicaKey, RoutingTable, Tier
from elasticd.traffic.leaving import LAST, Running, leaving
from elasticd.traffic.tickets import Lease

_TICK = 0.1
"""Seconds between two looks, while a replica with requests is to go."""

_NEWEST = 0.1
"""Weight of the latest answer in the usual length of a model's answers."""


class Leaves(Protocol):
    """What can be ended from outside."""

    def leave(self, why: Exception) -> None: ...


class Progresses(Protocol):
    """One request, as far as it has come."""

    @property
    def movable(self) -> bool: ...
    def would_go_on(self, endpoints: Iterable[Endpoint], asides: Asides) -> bool | None: ...
    def progress(self, now: float, usual: float | None) -> Running: ...
    def length(self) -> int | None: ...


class Room(Protocol):
    """Who knows how many requests other replicas could take at once, and which those are."""

    def room_beside(self, lease: Lease, *, begun: bool) -> int: ...
    def others(self, lease: Lease) -> list[Endpoint]: ...


class Run:
    """One request on one replica."""

    __slots__ = ("exchange", "journey", "key", "lease")

    def __init__(self, lease: Lease, journey: Progresses, exchange: Leaves) -> None:
        self.key = lease.endpoint.replica_key
        self.lease = lease
        self.journey = journey
        self.exchange = exchange


@dataclass(slots=True)
class _Going:
    """A replica that takes nothing new. `cut_at`: on our clock; `moved_at`: the last that left."""

    cut_at: float
    moved_at: float


class Leaving:
    """Everything that runs, and the replicas that are to go."""

    def __init__(self, room: Room, asides: Asides) -> None:
        self._room = room
        self._asides = asides
        self._loop = asyncio.get_running_loop()
        self._going: dict[ReplicaKey, _Going] = {}
        self._ending: frozenset[ReplicaKey] = frozenset()
        self._usual: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._runs: dict[ReplicaKey, set[Run]] = {}
        self._between: dict[Progresses, str] = {}
        """Those that have left and have no other replica yet, by model."""

    def enter(self, lease: Lease, journey: Progresses, exchange: Leaves) -> Run:
        """A replica is asked; to be followed by `exit`, whatever comes of it."""
        run = Run(lease, journey, exchange)
        if self._between:
            self._between.pop(journey, None)
        runs = self._runs.get(run.key)
        if runs is None:
            self._runs[run.key] = {run}
        else:
            runs.add(run)
        return run

    def exit(self, run: Run) -> None:
        """It is not asked any more."""
        runs = self._runs[run.key]
        runs.discard(run)
        if not runs:
            del self._runs[run.key]

    def over(self, journey: Progresses) -> None:
        """It has its answer, or will get none."""
        if self._between:
            self._between.pop(journey, None)

    def ended(self, model: str, journey: Progresses) -> None:
        """An answer is complete: one more measure of how long they are."""
        length = journey.length()
        if length:
            usual = self._usual.get(model, float(length))
            self._usual[model] = usual + _NEWEST * (length - usual)

    def is_going(self, key: ReplicaKey) -> bool:
        """Whether the replica is to go, whether it takes anything new or not."""
        return key in self._ending

    def follow(self, table: RoutingTable, ahead: float) -> None:
        """Learns who is to go. `ahead`: of the event loop's clock, that of the table's."""
        now = self._loop.time()
        ends = {
            endpoint.replica_key: (endpoint.tier, endpoint.cut_at - ahead)
            for route in table.models
            for endpoint in route.endpoints
            if endpoint.cut_at is not None
        }
        self._ending = frozenset(ends)
        known, self._going = self._going, {}
        for key, (tier, cut_at) in ends.items():
            if tier is not Tier.OPEN:
                moved_at = known[key].moved_at if key in known else now
                self._going[key] = _Going(cut_at, moved_at)
        if self._going and self._timer is None:
            self._look()

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for key, going in self._going.items():
            if runs := self._runs.get(key):
                self._take_off(going, list(runs), now)
        if self._going:
            self._timer = self._loop.call_later(_TICK, self._look)

    def _take_off(self, going: _Going, runs: list[Run], now: float) -> None:
        usual = self._usual
        movable = [run for run in runs if run.journey.movable]
        views = [
            run.journey.progress(now, usual.get(run.lease.ticket.ask.model)) for run in movable
        ]
        last = going.cut_at - now <= LAST
        for at in leaving(views, going.cut_at - now, now - going.moved_at):
            run = movable[at]
            if not last and not self._may_leave(run, views[at]):
                continue
            going.moved_at = now
            self._between[run.journey] = run.lease.ticket.ask.model
            run.exchange.leave(
                ReplicaLeaving(f"it is to go in {max(0.0, going.cut_at - now):.1f} s")
            )

    def _may_leave(self, run: Run, view: Running) -> bool:
        """Whether it would be answered elsewhere, and at once."""
        room, lease = self._room, run.lease
        coming = list(self._between.values()).count(lease.ticket.ask.model)
        if room.room_beside(lease, begun=view.begun) <= coming:
            return False
        asked = [lease.endpoint, *room.others(lease)]
        return run.journey.would_go_on(asked, self._asides) is True
