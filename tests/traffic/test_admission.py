"""Promises of the queues and leases."""

from __future__ import annotations

import pytest

from elasticd.routing_table import Endpoint, Tier
from elasticd.traffic.admission import Admission
from elasticd.traffic.census import ModelCount
from elasticd.traffic.routing import Ejection, Router
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
from tests.traffic.tables import endpoint, route, table


def opened(*endpoints, queue_limit: int = 100, max_wait: float = 60.0) -> Admission:
    admission = Admission(Router(Ejection(first=1.0)))
    admission.apply(table(route(*endpoints, queue_limit=queue_limit, max_wait=max_wait)), 0.0)
    return admission


def lease_of(outcomes: list[Outcome]) -> Lease:
    (outcome,) = outcomes
    assert isinstance(outcome, Granted)
    return outcome.lease


def test_a_request_with_a_free_slot_starts_at_once() -> None:
    admission = opened(endpoint())
    ticket, outcomes = admission.submit(Ask("m"), 0.0)
    assert lease_of(outcomes) == Lease(ticket, endpoint())


def test_before_the_first_table_nothing_is_known() -> None:
    ticket, outcomes = Admission().submit(Ask("m"), 0.0)
    assert outcomes == [Rejected(ticket, Refusal.NO_TABLE)]


def test_an_unknown_model_is_refused() -> None:
    ticket, outcomes = opened(endpoint()).submit(Ask("other"), 0.0)
    assert outcomes == [Rejected(ticket, Refusal.UNKNOWN_MODEL)]


def test_higher_priority_goes_first_then_arrival() -> None:
    admission = opened(endpoint(slots=1))
    running, _ = admission.submit(Ask("m"), 0.0)
    waiting = [
        admission.submit(Ask("m", priority), now)[0]
        for now, priority in ((1.0, 5), (2.0, 9), (3.0, 5), (4.0, 0))
    ]
    order = []
    current = running
    for _ in waiting:
        current = lease_of(admission.leave(current.id, 5.0)).ticket
        order.append(current)
    assert order == [waiting[1], waiting[0], waiting[2], waiting[3]]


def order_of_turns(admission: Admission, running: list[Ticket], turns: int) -> list[Ticket]:
    """Who gets the slot when the one that runs longest ends, again and again."""
    order = []
    for _ in range(turns):
        lease = lease_of(admission.leave(running.pop(0).id, 9.0))
        running.append(lease.ticket)
        order.append(lease.ticket)
    return order


def test_a_key_that_floods_the_queue_delays_itself_and_not_the_others() -> None:
    admission = opened(endpoint(slots=2))
    running = [admission.submit(Ask("m", key="loud"), 0.0)[0] for _ in range(2)]
    loud = [admission.submit(Ask("m", key="loud"), 1.0)[0] for _ in range(50)]
    quiet = [admission.submit(Ask("m", key="quiet"), 2.0)[0] for _ in range(3)]
    order = order_of_turns(admission, running, 6)
    assert order == [quiet[0], loud[0], quiet[1], loud[1], quiet[2], loud[2]]


def test_priority_goes_before_fairness() -> None:
    admission = opened(endpoint(slots=1))
    running = [admission.submit(Ask("m", key="loud"), 0.0)[0]]
    low, _ = admission.submit(Ask("m", 5, key="quiet"), 1.0)
    high, _ = admission.submit(Ask("m", 6, key="loud"), 2.0)
    assert order_of_turns(admission, running, 2) == [high, low]


def test_what_a_key_runs_on_one_model_does_not_count_on_another() -> None:
    admission = Admission()
    admission.apply(
        table(
            route(endpoint("a", slots=5), model="a"),
            route(endpoint("b", slots=1), model="b"),
        ),
        0.0,
    )
    for _ in range(5):
        admission.submit(Ask("a", key="x"), 0.0)
    running = [admission.submit(Ask("b", key="y"), 0.0)[0]]
    first, _ = admission.submit(Ask("b", key="x"), 1.0)
    second, _ = admission.submit(Ask("b", key="y"), 2.0)
    assert order_of_turns(admission, running, 2) == [first, second]


def test_whether_there_is_another_replica_counts_full_ones_but_not_those_tried() -> None:
    first, second = endpoint("a", slots=1), endpoint("b", slots=1)
    admission = opened(first, second)
    one = lease_of(admission.submit(Ask("m"), 0.0)[1])
    two = lease_of(admission.submit(Ask("m"), 0.0)[1])
    assert admission.has_another(one, 0.0)
    admission.leave(one.ticket.id, 0.0)
    again, _ = admission.retry(one, 0.0, lost=True)
    lease = lease_of(admission.leave(two.ticket.id, 0.0))
    assert (lease.ticket, lease.endpoint) == (again, second)
    assert not admission.has_another(lease, 0.0)


def test_a_replica_is_open_as_long_as_the_table_says_so() -> None:
    admission = opened(endpoint("a"), endpoint("b", tier=Tier.LAST_RESORT))
    assert [admission.is_open(endpoint(name)) for name in "abc"] == [True, False, False]


def test_without_max_wait_who_gets_no_slot_is_told_at_once_that_nothing_comes() -> None:
    admission = opened(max_wait=0.0)
    ticket, _ = admission.submit(Ask("m"), 1.0)
    assert admission.tick(1.0) == [Expired(ticket, "starting 1 replica", hopeless=True)]


def test_a_full_queue_refuses_the_newcomer_only() -> None:
    admission = opened(endpoint(slots=1), queue_limit=1)
    running, _ = admission.submit(Ask("m"), 0.0)
    waiting, outcomes = admission.submit(Ask("m"), 0.0)
    assert outcomes == []
    refused, outcomes = admission.submit(Ask("m"), 0.0)
    assert outcomes == [Rejected(refused, Refusal.QUEUE_FULL)]
    assert lease_of(admission.leave(running.id, 0.0)).ticket == waiting


def test_a_queue_limit_of_zero_still_serves_what_can_start_at_once() -> None:
    admission = opened(endpoint(slots=1), queue_limit=0)
    assert lease_of(admission.submit(Ask("m"), 0.0)[1])


def test_a_ticket_expires_at_its_deadline_with_the_state_of_its_model() -> None:
    admission = opened(max_wait=10.0)
    ticket, _ = admission.submit(Ask("m"), 1.0)
    assert admission.wake_at(1.0) == 11.0
    assert admission.tick(10.9) == []
    assert admission.tick(11.0) == [Expired(ticket, "starting 1 replica")]
    assert admission.leave(ticket.id, 12.0) == []
    assert admission.wake_at(12.0) is None


def test_a_new_endpoint_serves_what_waited() -> None:
    admission = opened()
    ticket, outcomes = admission.submit(Ask("m"), 0.0)
    assert outcomes == []
    assert not admission.has_replica("m", 0.0)
    outcomes = admission.apply(table(route(endpoint()), version=2), 1.0)
    assert lease_of(outcomes).ticket == ticket


def test_a_model_that_leaves_the_table_turns_its_queue_away() -> None:
    admission = opened()
    ticket, _ = admission.submit(Ask("m"), 0.0)
    assert admission.apply(table(version=2), 1.0) == [Rejected(ticket, Refusal.UNKNOWN_MODEL)]


def test_a_lease_outlives_its_endpoint_in_the_table() -> None:
    admission = opened(endpoint(slots=1))
    ticket, _ = admission.submit(Ask("m"), 0.0)
    admission.apply(table(route(endpoint(slots=1, tier=Tier.CLOSED)), version=2), 1.0)
    admission.apply(table(route(), version=3), 1.0)
    assert admission.loads() == {"r1": 1}
    assert admission.leave(ticket.id, 2.0) == []
    assert admission.idle


def test_a_retry_stands_at_its_old_place_and_goes_elsewhere() -> None:
    first, second = endpoint("a", slots=1), endpoint("b", slots=1)
    admission = opened(first, second)
    lost = lease_of(admission.submit(Ask("m"), 0.0)[1])
    other = lease_of(admission.submit(Ask("m"), 1.0)[1])
    later, _ = admission.submit(Ask("m"), 2.0)
    admission.failed(lost.endpoint, 3.0)
    assert admission.leave(lost.ticket.id, 3.0) == []
    again, outcomes = admission.retry(lost, 3.0, lost=True)
    assert outcomes == []
    granted = lease_of(admission.leave(other.ticket.id, 3.1))
    assert (granted.ticket, granted.endpoint) == (again, second)
    granted = lease_of(admission.tick(4.0))
    assert (granted.ticket, granted.endpoint) == (later, first)


def test_a_lost_request_waits_afresh_and_a_refused_one_keeps_its_deadline() -> None:
    for lost, deadline in ((True, 150.0), (False, 60.0)):
        admission = opened(endpoint(slots=1))
        lease = lease_of(admission.submit(Ask("m"), 0.0)[1])
        admission.failed(lease.endpoint, 90.0)
        admission.leave(lease.ticket.id, 90.0)
        again, _ = admission.retry(lease, 90.0, lost=lost)
        assert again.deadline == deadline


def test_a_retry_is_never_refused_for_a_full_queue() -> None:
    admission = opened(endpoint(slots=1), queue_limit=0)
    lease = lease_of(admission.submit(Ask("m"), 0.0)[1])
    admission.failed(lease.endpoint, 0.0)
    admission.leave(lease.ticket.id, 0.0)
    _, outcomes = admission.retry(lease, 0.0, lost=True)
    assert outcomes == []
    assert lease_of(admission.tick(1.0)).endpoint == lease.endpoint


def test_a_retry_that_must_wait_blocks_nobody() -> None:
    first, second = endpoint("a", slots=1), endpoint("b", slots=1)
    admission = opened(first, second)
    refused = lease_of(admission.submit(Ask("m"), 0.0)[1])
    admission.submit(Ask("m"), 0.0)
    admission.leave(refused.ticket.id, 0.0)
    _, outcomes = admission.retry(refused, 0.0, lost=False)
    assert outcomes == []
    ticket, outcomes = admission.submit(Ask("m"), 1.0)
    assert lease_of(outcomes) == Lease(ticket, first)


def test_waking_is_asked_for_when_a_replica_comes_back() -> None:
    admission = opened(endpoint(slots=1))
    admission.failed(endpoint(slots=1), 0.0)
    assert admission.wake_at(0.0) is None
    ticket, _ = admission.submit(Ask("m"), 0.2)
    assert admission.wake_at(0.2) == 1.0
    assert lease_of(admission.tick(1.0)).ticket == ticket


def test_counts_tell_the_peak_and_lose_no_arrival() -> None:
    admission = opened(endpoint(slots=1), queue_limit=1)
    running, _ = admission.submit(Ask("m"), 0.0)
    waiting, _ = admission.submit(Ask("m"), 0.0)
    admission.submit(Ask("m"), 0.0)
    admission.leave(waiting.id, 1.0)
    counts = admission.counts()
    assert counts == (ModelCount("m", queued=0, in_flight=1, peak=2, arrivals=3),)
    admission.submit(Ask("m"), 2.0)
    admission.counts_taken(counts)
    assert admission.counts() == (ModelCount("m", queued=1, in_flight=1, peak=2, arrivals=1),)
    admission.leave(running.id, 3.0)


def test_a_model_without_requests_is_counted_as_zero() -> None:
    assert opened().counts() == (ModelCount("m", 0, 0, 0, 0),)


def test_an_answer_that_has_begun_goes_on_with_a_replica_of_its_spec_or_waits() -> None:
    older = endpoint("a", spec_hash="one")
    admission = opened(older, endpoint("b", spec_hash="two"))
    _, outcomes = admission.submit(Ask("m"), 0.0)
    lease = lease_of(outcomes)
    assert lease.endpoint is older
    admission.failed(older, 0.0)
    admission.leave(lease.ticket.id, 0.0)
    ticket, outcomes = admission.retry(lease, 0.0, lost=True, begun=True)
    assert outcomes == []
    newcomer = endpoint("c", spec_hash="one")
    outcomes = admission.apply(table(route(newcomer), version=2), 1.0)
    assert outcomes == [Granted(Lease(ticket, newcomer))]


def test_who_waits_for_a_replica_on_trial_gets_it_when_it_answers() -> None:
    admission = opened(endpoint(slots=9))
    admission.failed(endpoint(slots=9), 0.0)
    for _ in range(3):
        admission.submit(Ask("m"), 0.5)
    trial = lease_of(admission.tick(1.0))
    assert len(admission.answered(trial.endpoint, 1.1)) == 2
    assert admission.answered(trial.endpoint, 1.1) == []


def test_a_fleet_that_refuses_is_asked_by_few_however_many_wait() -> None:
    """Each refusal is a new try; ejection alone bounds how many there are."""
    fleet = [endpoint(f"r{n}", slots=500) for n in range(10)]
    admission = Admission()
    admission.apply(table(route(*fleet, queue_limit=1000)), 0.0)
    for each in fleet:
        admission.failed(each, 0.0)
    for _ in range(500):
        admission.submit(Ask("m"), 0.0)
    now, tries = 0.0, 0
    while (wake := admission.wake_at(now)) is not None and wake <= 10.0:
        now = wake
        todo = admission.tick(now)
        while todo:
            lease = lease_of([todo.pop()])
            tries += 1
            admission.failed(lease.endpoint, now)
            todo += admission.leave(lease.ticket.id, now)
            todo += admission.retry(lease, now, lost=False)[1]
    assert 10 <= tries <= 10 * 8


def begun_and_lost(spec_now: str, *left: Endpoint) -> tuple[Admission, Ticket, list[Outcome]]:
    """A stream that a replica of spec `one` had begun; then that replica is gone."""
    older = endpoint("a", spec_hash="one")
    admission = Admission()
    admission.apply(table(route(older, spec_hash="one")), 0.0)
    lease = lease_of(admission.submit(Ask("m"), 0.0)[1])
    admission.failed(older, 0.0)
    admission.leave(lease.ticket.id, 0.0)
    ticket, outcomes = admission.retry(lease, 0.0, lost=True, begun=True)
    assert outcomes == []
    return admission, ticket, admission.apply(table(route(*left, spec_hash=spec_now)), 0.1)


def test_a_wait_for_a_spec_that_a_roll_out_has_taken_away_ends_at_once() -> None:
    admission, ticket, outcomes = begun_and_lost("two", endpoint("b", spec_hash="two"))
    assert outcomes == [Rejected(ticket, Refusal.SPEC_GONE)]
    assert admission.idle
    assert admission.counts()[0].queued == 0


@pytest.mark.parametrize(
    ("spec_now", "left"),
    [
        ("one", []),
        ("", [endpoint("b", spec_hash="two")]),
        ("two", [endpoint("c", spec_hash="one", tier=Tier.CLOSED)]),
    ],
    ids=["a new one may come", "an older controller does not say", "one of it may come back"],
)
def test_a_wait_for_a_spec_goes_on_while_a_replica_of_it_may_come(
    spec_now: str, left: list[Endpoint]
) -> None:
    admission, _, outcomes = begun_and_lost(spec_now, *left)
    assert outcomes == []
    assert not admission.idle


def test_a_loss_after_the_roll_out_does_not_even_wait() -> None:
    older = endpoint("a", spec_hash="one")
    admission = Admission()
    admission.apply(table(route(older, spec_hash="one")), 0.0)
    lease = lease_of(admission.submit(Ask("m"), 0.0)[1])
    newer = endpoint("b", spec_hash="two")
    admission.apply(table(route(newer, spec_hash="two"), version=2), 1.0)
    admission.leave(lease.ticket.id, 2.0)
    ticket, outcomes = admission.retry(lease, 2.0, lost=True, begun=True)
    assert outcomes == [Rejected(ticket, Refusal.SPEC_GONE)]
    lost = lease_of(admission.submit(Ask("m"), 2.0)[1])
    assert lost.endpoint is newer, "who has no answer yet starts with the new one"
