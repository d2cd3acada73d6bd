"""The async shell around `Admission`: requests await their lease here.

Performs the outcomes that `Admission` returns, keeps the one timer it asks for, and pokes the
reporter when the scaler should hear at once. Decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from elasticd.gateway.errors import turned_away
from elasticd.routing_table import Endpoint, RoutingTable
from elasticd.traffic.admission import Admission
from elasticd.traffic.tickets import Ask, Granted, Lease, Outcome, Rejected, Ticket


class Claim:
    """A request's place: first in the queue, then on a replica. Leaving it gives both back.

    `at_once`: the lease of a request that need not wait, as nearly none has to.
    """

    __slots__ = ("_desk", "_granted", "_ticket", "at_once")

    def __init__(
        self,
        desk: Desk,
        ticket: Ticket,
        at_once: Lease | None,
        granted: asyncio.Future[Lease] | None = None,
    ) -> None:
        self.at_once = at_once
        self._desk = desk
        self._ticket = ticket
        self._granted = granted

    async def lease(self) -> Lease:
        """Waits for a slot. Raises `ApiError` when there will be none."""
        if self._granted is not None:
            return await self._granted
        assert self.at_once is not None
        return self.at_once

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        granted = self._granted
        if granted is not None and not granted.cancel() and not granted.cancelled():
            granted.exception()  # it has been told, also if nobody came to hear it
        self._desk.leave(self._ticket)


class Desk:
    """Hands out claims. `now` is the clock; `poke` makes the reporter speak at once."""

    def __init__(
        self, admission: Admission, now: Callable[[], float], poke: Callable[[], None]
    ) -> None:
        self._admission = admission
        self._now = now
        self._poke = poke
        self._waiting: dict[int, asyncio.Future[Lease]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def claim(self, ask: Ask) -> Claim:
        """A new request's place in the queue. The scaler hears at once of the first one, and of
        each for which there is no replica; never of one that may not wait."""
        was_idle, now = self._admission.idle, self._now()
        ticket, outcomes = self._admission.submit(ask, now)
        mine = next((o for o in outcomes if o.ticket is ticket), None) if outcomes else None
        if isinstance(mine, Granted) and len(outcomes) == 1:  # nearly always
            if was_idle:
                self._poke()
            return Claim(self, ticket, mine.lease)
        wanting = mine is None and not self._admission.has_replica(ask.model, now)
        if wanting or (was_idle and not isinstance(mine, Rejected)):
            self._poke()
        return self._claim(ticket, outcomes, now)

    def claim_again(
        self, lease: Lease, *, lost: bool, begun: bool = False, again: bool = False
    ) -> Claim:
        """The place of a request whose replica failed it, see `Admission.retry`; its former claim
        has been left."""
        now = self._now()
        asked = self._admission.retry(lease, now, lost=lost, begun=begun, again=again)
        return self._claim(*asked, now)

    def leave(self, ticket: Ticket) -> None:
        """Ends a claim; the slot goes to the next request at once."""
        now = self._now()
        outcomes = self._admission.leave(ticket.id, now)
        if outcomes or self._waiting:
            self._waiting.pop(ticket.id, None)
            self._perform(outcomes, now)

    def apply(self, table: RoutingTable) -> None:
        """Puts a new table in force."""
        now = self._now()
        self._perform(self._admission.apply(table, now), now)

    def replica_failed(self, endpoint: Endpoint) -> None:
        """Sets the replica aside for a while."""
        self._admission.failed(endpoint, self._now())

    def replica_answered(self, lease: Lease) -> None:
        """The replica works."""
        now = self._now()
        if outcomes := self._admission.answered(lease.endpoint, now):
            self._perform(outcomes, now)

    def has_another(self, lease: Lease) -> bool:
        """Whether there is a replica, full or not, that this request has not tried yet."""
        return self._admission.has_another(lease, self._now())

    def room_beside(self, lease: Lease, *, begun: bool) -> int:
        """How many such requests other replicas would take at once, see `Admission`."""
        return self._admission.room_beside(lease, self._now(), begun=begun)

    def others(self, lease: Lease) -> list[Endpoint]:
        """The replicas that could go on with what this one has begun."""
        return self._admission.others(lease, self._now())

    def takes(self, endpoint: Endpoint) -> bool:
        """Whether the table still sends requests to the replica."""
        return self._admission.is_open(endpoint)

    def is_open(self, lease: Lease) -> bool:
        """Whether the table still sends requests to the lease's replica."""
        return self._admission.is_open(lease.endpoint)

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _claim(self, ticket: Ticket, outcomes: Iterable[Outcome], now: float) -> Claim:
        granted: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting[ticket.id] = granted
        self._perform(outcomes, now)
        return Claim(self, ticket, None, granted)

    def _perform(self, outcomes: Iterable[Outcome], now: float) -> None:
        """`now`: that of the outcomes. What falls due in between must not be passed over."""
        for outcome in outcomes:
            waiting = self._waiting.pop(outcome.ticket.id)
            if waiting.done():
                continue  # its owner was cancelled just now and is about to leave
            if isinstance(outcome, Granted):
                waiting.set_result(outcome.lease)
            else:
                waiting.set_exception(turned_away(outcome))
        self._arm(now)

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self._admission.wake_at(now)
        if wake_at is not None:
            delay = max(0.0, wake_at - self._now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._now()
        self._perform(self._admission.tick(now), now)
