"""Promises of the retry budget: an incident never meets it, a storm does."""

from __future__ import annotations

from elasticd.traffic.retries import LEAST, SHARE, SPAN, RetryBudget

NOW = 1000.0


def taken(budget: RetryBudget, asked: int, now: float) -> int:
    return sum(budget.take(now) for _ in range(asked))


def test_a_fleet_with_few_requests_has_a_budget_too() -> None:
    assert taken(RetryBudget(), 1000, NOW) == LEAST * SPAN


def test_each_running_stream_may_lose_a_second_replica_at_the_same_moment() -> None:
    """Two nodes with 500 streams each are lost, and then those where they went."""
    budget = RetryBudget()
    for _ in range(1000):
        budget.begin(NOW)
    assert taken(budget, 1000, NOW + 600.0) == 1000
    assert not budget.take(NOW + 600.0)


def test_an_incident_is_forgotten_after_its_span() -> None:
    budget = RetryBudget()
    for _ in range(500):
        budget.begin(NOW)
    for incident in range(5):
        assert taken(budget, 1000, NOW + incident * SPAN) == 500


def test_requests_that_fail_fast_are_multiplied_by_a_fifth_at_most() -> None:
    """Each wants a further try; none runs for long, so few are under way."""
    budget, allowed = RetryBudget(), 0
    rate, seconds = 500, 60
    for number in range(rate * seconds):
        now = NOW + number / rate
        budget.begin(now)
        allowed += budget.take(now)
        budget.end()
    assert allowed <= (SHARE * rate + LEAST) * (seconds + SPAN)
    assert allowed >= SHARE * rate * (seconds - SPAN)


def test_a_long_pause_leaves_nothing_behind() -> None:
    budget = RetryBudget()
    taken(budget, 1000, NOW)
    assert not budget.take(NOW + SPAN - 1)
    assert taken(budget, 1000, NOW + 1e6) == LEAST * SPAN
