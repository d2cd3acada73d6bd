"""Who waits for a replica and who has one: a pure, bounded queue per model.

Owns every `Ticket` (a waiting request) and every `Lease` (its claim on one slot). No I/O, no
clock: `now` is an argument, and each method returns the outcomes for the async shell to perform.

The rules:

* A ticket ends in exactly one of: `Granted`, `Expired`, `Rejected`, or its owner leaves.
* Order is priority (9 first), then fairness between keys, then arrival (`Line`). A retry keeps its
  arrival, so it stands in front.
* Leaving, for whatever reason, frees the slot and grants it to the next ticket at once.
* A request that lost its replica waits afresh; one that was only refused keeps its deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from elasticd.routing_table import Endpoint, ModelRoute, RoutingTable
from elasticd.traffic.census import Census, ModelCount
from elasticd.traffic.line import Line
from elasticd.traffic.routing import Router
from elasticd.traffic.tickets import (
    Ask,
    Expired,
    Granted,
    Lease,
    Outcome,
    Refusal,
    Rejected,
    Ticket,
)


class Admission:
    """The queues and leases of all models. One owner calls it; nothing in it awaits."""

    def __init__(self, router: Router | None = None) -> None:
        self._router = router or Router()
        self._table: RoutingTable | None = None
        self._routes: dict[str, ModelRoute] = {}
        self._lines: dict[str, Line] = {}
        self._tickets: dict[int, Ticket] = {}
        self._leases: dict[int, Lease] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._minted = 0
        self._census = Census()

    # -- what requests do ------------------------------------------------------------------

    def submit(self, ask: Ask, now: float) -> tuple[Ticket, list[Outcome]]:
        """A new request asks for a slot."""
        route = self._routes.get(ask.model)
        ticket = self._mint(ask, route, arrived=now, now=now)
        if route is None:
            why = Refusal.NO_TABLE if self._table is None else Refusal.UNKNOWN_MODEL
            return ticket, [Rejected(ticket, why)]
        if not self._waits(ask.model):  # nearly always: nobody is in front, so there is no queue
            endpoint = self._router.choose(route, ticket.tried, now)
            if endpoint is not None:
                self._census.admitted(ask.model)
                return ticket, [self._taken(Lease(ticket, endpoint), now)]
        self._census.arrived(ask.model)
        self._enqueue(ticket)
        outcomes = self._grant(ask.model, now)
        if ticket.id in self._tickets and self._lines[ask.model].waiting > route.queue_limit:
            self._dequeue(ticket)
            outcomes.append(Rejected(ticket, Refusal.QUEUE_FULL))
        self._keep(ticket)
        return ticket, outcomes

    def retry(
        self, lease: Lease, now: float, *, lost: bool, begun: bool = False, again: bool = False
    ) -> tuple[Ticket, list[Outcome]]:
        """A request whose replica failed asks again, at its old place.

        `lost`: the replica had taken the request. `begun`: its client has a part of the answer, so
        only a replica of the same spec can go on with it. `again`: that replica has not been asked,
        so it is as good as any. The old lease must have been left.
        """
        assert lease.ticket.id not in self._leases, "leave the lease before asking again"
        old = lease.ticket
        route = self._routes.get(old.ask.model)
        ticket = self._mint(old.ask, route, arrived=old.arrived, now=now)._replace(
            tried=old.tried if again else old.tried | {lease.endpoint.replica_key},
            spec_hash=lease.endpoint.spec_hash if begun else "",
        )
        if not lost:
            ticket = ticket._replace(deadline=old.deadline)
        if route is None:
            return ticket, [Rejected(ticket, Refusal.UNKNOWN_MODEL)]
        self._enqueue(ticket)
        outcomes = self._grant(old.ask.model, now)
        self._keep(ticket)
        if ticket.id in self._tickets and self._is_orphan(ticket):
            outcomes.append(self._let_go(ticket))
        return ticket, outcomes

    def leave(self, ticket_id: int, now: float) -> list[Outcome]:
        """The request is over, gave up waiting, or goes on as a retry; twice is once."""
        lease = self._leases.pop(ticket_id, None)
        if lease is None:
            waiting = self._tickets.get(ticket_id)
            if waiting is not None:
                self._dequeue(waiting)
                self._count(waiting.ask.model)
            return []
        self._router.give_back(lease.endpoint)
        model = lease.ticket.ask.model
        line = self._lines[model]
        line.ended(lease.ticket.ask.key)
        self._census.running(model, -1)
        if line.idle:
            del self._lines[model]
        if not line.waiting:  # nearly always
            return []
        outcomes = self._grant(model, now)
        self._forget(model)
        self._count(model)
        return outcomes

    def failed(self, endpoint: Endpoint, now: float) -> None:
        """The replica's connection broke or it refuses: it is set aside for a while."""
        self._router.set_aside(endpoint, now)

    def answered(self, endpoint: Endpoint, now: float) -> list[Outcome]:
        """The replica gave a first byte. Who waits for one that had failed gets it at once."""
        return self._grant_all(now) if self._router.proven(endpoint) else []

    # -- what the world does ---------------------------------------------------------------

    def apply(self, table: RoutingTable, now: float) -> list[Outcome]:
        """A new table: leases go on wherever they are, waiting tickets see the new endpoints."""
        self._table = table
        self._routes = {route.model: route for route in table.models}
        self._router.follow(table)
        outcomes: list[Outcome] = []
        for ticket in list(self._tickets.values()):
            if ticket.ask.model not in self._routes:
                self._dequeue(ticket)
                outcomes.append(Rejected(ticket, Refusal.UNKNOWN_MODEL))
        return outcomes + self._grant_all(now) + self._hopeless() + self._orphaned()

    def tick(self, now: float) -> list[Outcome]:
        """Time has passed: ends the tickets that are due, looks again at replicas set aside."""
        outcomes: list[Outcome] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            ticket = self._tickets.get(heapq.heappop(self._deadlines)[1])
            if ticket is not None:
                self._dequeue(ticket)
                self._count(ticket.ask.model)
                route = self._routes[ticket.ask.model]
                outcomes.append(Expired(ticket, route.state, hopeless=route.max_wait == 0.0))
        return outcomes + self._grant_all(now)

    def wake_at(self, now: float) -> float | None:
        """When `tick` will have something to do, if nothing else happens before."""
        if not self._tickets:  # nearly always: nobody waits for anything
            self._deadlines.clear()
            return None
        while self._deadlines and self._deadlines[0][1] not in self._tickets:
            heapq.heappop(self._deadlines)
        times = [self._deadlines[0][0]] if self._deadlines else []
        waiting = (self._routes[model] for model, line in self._lines.items() if line.waiting)
        back = self._router.next_return(waiting, now)
        if back is not None:
            times.append(back)
        return min(times, default=None)

    # -- what others may know --------------------------------------------------------------

    @property
    def table(self) -> RoutingTable | None:
        """The table in force; `None` before the first."""
        return self._table

    def has_replica(self, model: str, now: float) -> bool:
        """Whether some replica of the model takes requests, full or not."""
        route = self._routes.get(model)
        return route is not None and self._router.usable(route, now)

    def has_another(self, lease: Lease, now: float) -> bool:
        """Whether the request could go to a replica, full or not, that it has not tried yet."""
        route = self._routes.get(lease.ticket.ask.model)
        tried = lease.ticket.tried | {lease.endpoint.replica_key}
        return route is not None and self._router.usable(route, now, tried)

    def room_beside(self, lease: Lease, now: float, *, begun: bool) -> int:
        """How many such requests other replicas, which stay, would take at once. `begun`: those of
        the same spec, for they go on with what this one has begun."""
        route = self._routes.get(lease.ticket.ask.model)
        if route is None or self._waits(route.model):
            return 0
        tried = lease.ticket.tried | {lease.endpoint.replica_key}
        spec_hash = lease.endpoint.spec_hash if begun else ""
        return self._router.room(route, tried, now, spec_hash)

    def others(self, lease: Lease, now: float) -> list[Endpoint]:
        """Replicas, full or not, that could go on with what the lease's one has begun."""
        route = self._routes.get(lease.ticket.ask.model)
        if route is None:
            return []
        tried = lease.ticket.tried | {lease.endpoint.replica_key}
        able = self._router.able(route, now, tried)
        return [e for e in able if e.spec_hash == lease.endpoint.spec_hash]

    def is_open(self, endpoint: Endpoint) -> bool:
        """Whether the table in force sends requests to the replica."""
        return self._router.is_open(endpoint)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._tickets and not self._leases

    def counts(self) -> tuple[ModelCount, ...]:
        """Demand of every model of the table since the last `counts_taken`."""
        return self._census.read(self._routes)

    def counts_taken(self, counts: Iterable[ModelCount]) -> None:
        """These counts have reached the controller: the next ones start from here."""
        self._census.taken(counts)

    def loads(self) -> dict[str, int]:
        """Requests in flight by replica id."""
        return self._router.loads(self._table) if self._table else {}

    def _hopeless(self) -> list[Outcome]:
        """Ends the tickets for which nothing is coming any more: a route without `max_wait`."""
        outcomes: list[Outcome] = []
        for ticket in list(self._tickets.values()):
            route = self._routes[ticket.ask.model]
            if route.max_wait == 0.0:
                self._dequeue(ticket)
                self._count(route.model)
                outcomes.append(Expired(ticket, route.state, hopeless=True))
        return outcomes

    def _orphaned(self) -> list[Outcome]:
        """Ends the tickets whose answer was begun by what a roll-out has taken away."""
        return [self._let_go(t) for t in list(self._tickets.values()) if self._is_orphan(t)]

    def _is_orphan(self, ticket: Ticket) -> bool:
        """A replica that is listed may come back, whatever its tier; one of the spec that is
        started now may come."""
        route = self._routes[ticket.ask.model]
        if not ticket.spec_hash or route.spec_hash in ("", ticket.spec_hash):
            return False
        return all(e.spec_hash != ticket.spec_hash for e in route.endpoints)

    def _let_go(self, ticket: Ticket) -> Rejected:
        self._dequeue(ticket)
        self._count(ticket.ask.model)
        return Rejected(ticket, Refusal.SPEC_GONE)

    # -- inside ----------------------------------------------------------------------------

    def _mint(self, ask: Ask, route: ModelRoute | None, arrived: float, now: float) -> Ticket:
        self._minted += 1
        return Ticket(self._minted, ask, arrived, now + (route.max_wait if route else 0.0))

    def _enqueue(self, ticket: Ticket) -> None:
        self._line(ticket.ask.model).add(ticket)
        self._tickets[ticket.id] = ticket

    def _keep(self, ticket: Ticket) -> None:
        """Remembers the deadline, only of a ticket that really waits: most never do."""
        if ticket.id in self._tickets:
            heapq.heappush(self._deadlines, (ticket.deadline, ticket.id))
        self._count(ticket.ask.model)

    def _dequeue(self, ticket: Ticket) -> None:
        del self._tickets[ticket.id]
        self._lines[ticket.ask.model].remove(ticket)
        self._forget(ticket.ask.model)

    def _forget(self, model: str) -> None:
        line = self._lines.get(model)
        if line is not None and line.idle:
            del self._lines[model]

    def _grant_all(self, now: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for model in sorted(self._lines):
            outcomes += self._grant(model, now)
            self._count(model)
        return outcomes

    def _grant(self, model: str, now: float) -> list[Outcome]:
        """Gives free slots to tickets in order."""
        outcomes: list[Outcome] = []
        route, line = self._routes.get(model), self._lines.get(model)
        if route is None or line is None:
            return outcomes
        while (lease := self._next_lease(route, line, now)) is not None:
            outcomes.append(self._taken(lease, now))
            self._census.running(model, +1)
            self._dequeue(lease.ticket)
        return outcomes

    def _taken(self, lease: Lease, now: float) -> Granted:
        """The lease is the ticket's from now on."""
        ticket = lease.ticket
        self._router.take(lease.endpoint, now)
        self._line(ticket.ask.model).started(ticket.ask.key)
        self._leases[ticket.id] = lease
        return Granted(lease)

    def _line(self, model: str) -> Line:
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = Line()
        return line

    def _waits(self, model: str) -> bool:
        line = self._lines.get(model)
        return line is not None and line.waiting > 0

    def _next_lease(self, route: ModelRoute, line: Line, now: float) -> Lease | None:
        """A retry that must wait, since only replicas it has tried are free, blocks nobody."""
        for ticket in line.in_order():
            endpoint = self._router.choose(route, ticket.tried, now, ticket.spec_hash)
            if endpoint is not None:
                return Lease(ticket, endpoint)
            if not ticket.tried:
                break
        return None

    def _count(self, model: str) -> None:
        line = self._lines.get(model)
        self._census.waiting(model, line.waiting if line is not None else 0)
