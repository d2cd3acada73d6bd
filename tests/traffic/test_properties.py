"""Whatever happens in whatever order: slots hold, every ticket ends once, nobody is forgotten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticd.routing_table import Endpoint, Tier
from elasticd.traffic.admission import Admission
from elasticd.traffic.routing import Ejection, Router
from elasticd.traffic.tickets import Ask, Expired, Granted, Lease, Outcome, Ticket
from tests.traffic.tables import endpoint, route, table

MODELS = ("a", "b")

endpoints = st.lists(
    st.builds(
        endpoint,
        st.sampled_from(["r1", "r2", "r3"]),
        slots=st.integers(0, 3),
        tier=st.sampled_from(Tier),
        incarnation=st.integers(1, 2),
    ),
    unique_by=lambda e: e.replica_key,
    max_size=4,
)


class Requests(RuleBasedStateMachine):
    """Clients come, wait, run, fail and leave; tables change; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.admission = Admission(Router(Ejection(first=0.5, longest=4.0)))
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Lease] = {}
        self.ended: set[int] = set()
        self.listed: dict[str, list[Endpoint]] = {}

    @initialize(a=endpoints, b=endpoints)
    def first_table(self, a: list[Endpoint], b: list[Endpoint]) -> None:
        self.new_table(a, b)

    @rule(a=endpoints, b=endpoints)
    def new_table(self, a: list[Endpoint], b: list[Endpoint]) -> None:
        self.listed = {
            model: [replace(e, replica_id=f"{model}-{e.replica_id}") for e in found]
            for model, found in zip(MODELS, (a, b), strict=True)
        }
        routes = [
            route(*found, model=model, queue_limit=3, max_wait=5.0)
            for model, found in self.listed.items()
        ]
        self.perform(self.admission.apply(table(*routes), self.now))

    @rule(model=st.sampled_from(MODELS), priority=st.integers(4, 6), key=st.sampled_from("xyz"))
    def arrive(self, model: str, priority: int, key: str) -> None:
        ticket, outcomes = self.admission.submit(Ask(model, priority, key), self.now)
        self.waiting[ticket.id] = ticket
        self.perform(outcomes)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        ticket = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        self.ended.add(ticket.id)
        self.perform(self.admission.leave(ticket.id, self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        lease = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.perform(self.admission.answered(lease.endpoint, self.now))
        self.perform(self.admission.leave(lease.ticket.id, self.now))
        assert self.admission.leave(lease.ticket.id, self.now) == []

    @precondition(lambda self: self.running)
    @rule(data=st.data(), lost=st.booleans())
    def fail(self, data: st.DataObject, lost: bool) -> None:
        lease = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.admission.failed(lease.endpoint, self.now)
        self.perform(self.admission.leave(lease.ticket.id, self.now))
        ticket, outcomes = self.admission.retry(lease, self.now, lost=lost)
        assert ticket.arrived == lease.ticket.arrived
        self.waiting[ticket.id] = ticket
        self.perform(outcomes)

    @rule(seconds=st.floats(0.0, 6.0))
    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake := self.admission.wake_at(self.now)) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.perform(self.admission.tick(self.now))
        self.now = until

    def perform(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            ticket = self.waiting.pop(outcome.ticket.id)
            assert ticket == outcome.ticket
            assert ticket.id not in self.ended, "a ticket ended twice"
            self.ended.add(ticket.id)
            if isinstance(outcome, Granted):
                self.check_grant(outcome.lease)
                self.running[ticket.id] = outcome.lease
            elif isinstance(outcome, Expired):
                assert ticket.deadline <= self.now

    def check_grant(self, lease: Lease) -> None:
        assert lease.endpoint in self.listed[lease.ticket.ask.model]
        assert lease.endpoint.tier is not Tier.CLOSED
        assert self.used(lease.endpoint) < lease.endpoint.slots, "more requests than slots"
        overtaken = [t for t in self.waiting.values() if self.goes_before(t, lease.ticket)]
        assert all(t.tried for t in overtaken), "overtaken by a request whose turn it was not"

    def goes_before(self, one: Ticket, other: Ticket) -> bool:
        """Whether it is the turn of the first one: by priority, what its key runs, arrival."""
        if one.ask.model != other.ask.model:
            return False

        def turn(ticket: Ticket) -> tuple[int, int, float, int]:
            running = sum(
                lease.ticket.ask.model == ticket.ask.model
                and lease.ticket.ask.key == ticket.ask.key
                for lease in self.running.values()
            )
            return -ticket.ask.priority, running, ticket.arrived, ticket.id

        return turn(one) < turn(other)

    def used(self, endpoint: Endpoint) -> int:
        key = endpoint.replica_key
        return sum(lease.endpoint.replica_key == key for lease in self.running.values())

    @invariant()
    def loads_are_the_leases(self) -> None:
        loads = self.admission.loads()
        for model_endpoints in self.listed.values():
            for e in model_endpoints:
                total = sum(
                    lease.endpoint.replica_id == e.replica_id for lease in self.running.values()
                )
                assert loads[e.replica_id] == total

    @invariant()
    def counts_are_true(self) -> None:
        for count in self.admission.counts():
            queued = sum(t.ask.model == count.model for t in self.waiting.values())
            running = sum(lease.ticket.ask.model == count.model for lease in self.running.values())
            assert (count.queued, count.in_flight) == (queued, running)
            assert count.peak >= queued + running

    @invariant()
    def nobody_waits_for_a_slot_that_is_free(self) -> None:
        """Looking again changes nothing: each step has granted all there was to grant."""
        wake = self.admission.wake_at(self.now)
        if wake is None or wake > self.now:
            assert self.admission.tick(self.now) == []

    def teardown(self) -> None:
        """When everything ends, nothing is left: no slot, no ticket."""
        for ticket_id in sorted(self.running):
            lease = self.running.pop(ticket_id)
            self.perform(self.admission.leave(lease.ticket.id, self.now))
        for ticket_id in sorted(self.waiting):
            self.admission.leave(ticket_id, self.now)
        for ticket_id in sorted(self.running):
            self.admission.leave(ticket_id, self.now)
        assert self.admission.idle
        assert not any(self.admission.loads().values())


TestRequests = Requests.TestCase
TestRequests.settings = settings(
    max_examples=150, derandomize=True, stateful_step_count=40, deadline=None
)
