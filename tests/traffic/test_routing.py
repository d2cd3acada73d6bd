"""Promises of the router."""

from __future__ import annotations

import pytest

from elasticd.routing_table import Tier
from elasticd.traffic.routing import Ejection, Router
from tests.traffic.tables import endpoint, route, table

NOBODY: frozenset[tuple[str, int]] = frozenset()


def test_the_least_loaded_replica_for_its_slots_and_weight_is_taken() -> None:
    small, large = endpoint("a", slots=2), endpoint("b", slots=10)
    heavy = endpoint("c", slots=10, weight=2.0)
    router = Router()
    for e in (small, large, large, heavy, heavy):
        router.take(e, 0.0)
    assert router.choose(route(small, large, heavy), NOBODY, 0.0) == heavy


def test_ties_break_by_id() -> None:
    router = Router()
    assert router.choose(route(endpoint("b"), endpoint("a")), NOBODY, 0.0) == endpoint("a")


def test_a_full_replica_is_never_taken() -> None:
    only = endpoint(slots=1)
    router = Router()
    router.take(only, 0.0)
    assert router.choose(route(only), NOBODY, 0.0) is None
    with pytest.raises(ValueError, match="no free slot"):
        router.take(only, 0.0)


def test_a_last_resort_waits_behind_a_full_open_replica() -> None:
    open_, last = endpoint("a", slots=1), endpoint("b", tier=Tier.LAST_RESORT)
    router = Router()
    router.take(open_, 0.0)
    assert router.choose(route(open_, last), NOBODY, 0.0) is None
    assert router.choose(route(last), NOBODY, 0.0) == last


def test_a_last_resort_serves_while_the_open_replica_is_set_aside() -> None:
    open_, last = endpoint("a"), endpoint("b", tier=Tier.LAST_RESORT)
    router = Router()
    router.set_aside(open_, 0.0)
    assert router.choose(route(open_, last), NOBODY, 0.1) == last


def test_a_closed_replica_is_never_taken() -> None:
    router = Router()
    assert router.choose(route(endpoint(tier=Tier.CLOSED)), NOBODY, 0.0) is None
    assert not router.usable(route(endpoint(tier=Tier.CLOSED)), 0.0)


def test_a_tried_replica_is_avoided_even_if_the_other_is_full() -> None:
    first, second = endpoint("a"), endpoint("b", slots=1)
    router = Router()
    router.take(second, 0.0)
    tried = frozenset({first.replica_key})
    assert router.choose(route(first, second), tried, 0.0) is None
    router.give_back(second)
    assert router.choose(route(first, second), tried, 0.0) == second


def test_a_tried_replica_is_asked_again_when_it_is_the_only_one() -> None:
    only = endpoint()
    router = Router()
    assert router.choose(route(only), frozenset({only.replica_key}), 0.0) == only


def test_a_failing_replica_is_set_aside_for_longer_each_time() -> None:
    only = endpoint()
    router = Router(Ejection(first=1.0, longest=3.0))
    now = 0.0
    for period in (1.0, 2.0, 3.0, 3.0):
        router.set_aside(only, now)
        assert router.next_return([route(only)], now) == now + period
        assert not router.usable(route(only), now + period - 0.01)
        assert router.usable(route(only), now + period)
        now += period


def test_streams_that_break_together_are_one_failure() -> None:
    only = endpoint()
    router = Router(Ejection(first=1.0))
    for moment in (0.0, 0.1, 0.2):
        router.set_aside(only, moment)
    assert router.next_return([route(only)], 0.2) == 1.0


def test_an_answer_clears_the_record() -> None:
    only = endpoint()
    router = Router(Ejection(first=1.0))
    router.set_aside(only, 0.0)
    router.proven(only)
    assert router.usable(route(only), 0.0)
    router.set_aside(only, 5.0)
    assert router.next_return([route(only)], 5.0) == 6.0


def test_the_table_overrules_a_set_aside_replica_by_closing_and_reopening_it() -> None:
    only = endpoint()
    router = Router(Ejection(first=100.0, longest=100.0))
    router.set_aside(only, 0.0)
    router.follow(table(route(only)))
    assert not router.usable(route(only), 1.0)
    router.follow(table(route(endpoint(tier=Tier.CLOSED))))
    assert router.usable(route(only), 1.0)


def test_a_new_incarnation_has_a_clean_record() -> None:
    router = Router(Ejection(first=100.0))
    router.set_aside(endpoint(incarnation=1), 0.0)
    assert router.usable(route(endpoint(incarnation=2)), 1.0)


def test_loads_name_every_replica_of_the_table_and_those_that_still_run() -> None:
    gone, listed = endpoint("gone"), endpoint("listed")
    router = Router()
    router.take(gone, 0.0)
    router.follow(table(route(listed)))
    assert router.loads(table(route(listed))) == {"gone": 1, "listed": 0}
    router.give_back(gone)
    router.follow(table(route(listed)))
    assert router.loads(table(route(listed))) == {"listed": 0}


def test_a_replica_that_failed_is_tried_by_one_request_alone() -> None:
    router = Router(Ejection(first=1.0, longest=1.0, trial=0.5))
    only = route(endpoint(slots=9))
    router.set_aside(only.endpoints[0], 0.0)
    assert router.choose(only, NOBODY, 1.0) is not None
    router.take(only.endpoints[0], 1.0)
    assert router.choose(only, NOBODY, 1.1) is None
    assert router.next_return([only], 1.1) == 1.5
    router.set_aside(only.endpoints[0], 1.2)
    assert router.choose(only, NOBODY, 2.1) is None, "a trial that fails is one more failure"
    router.take(only.endpoints[0], 2.2)
    assert router.proven(only.endpoints[0]), "its answer opens the replica"
    assert router.choose(only, NOBODY, 2.2) is not None


def test_a_trial_that_takes_long_holds_nobody_up() -> None:
    router = Router(Ejection(first=1.0, trial=0.5))
    only = route(endpoint(slots=9))
    router.set_aside(only.endpoints[0], 0.0)
    router.take(only.endpoints[0], 1.0)
    for _ in range(3):
        assert router.choose(only, NOBODY, 1.5) is not None
        router.take(only.endpoints[0], 1.5)


def test_a_replica_that_fails_fast_does_not_look_idle() -> None:
    """The one that answers 503 at once has always the fewest requests."""
    bad, good = endpoint("a", slots=16), endpoint("b", slots=16)
    both = route(bad, good)
    router = Router()
    met = 0
    for moment in range(1000):
        now = moment / 100
        chosen = router.choose(both, NOBODY, now)
        if chosen is not bad:
            continue
        met += 1
        router.take(bad, now)
        router.set_aside(bad, now)
        router.give_back(bad)
    assert 2 <= met <= 8, "ten seconds at a hundred requests a second"


def test_a_replica_that_is_healthy_again_serves_within_two_seconds() -> None:
    """However long it failed, and whenever it comes back."""
    only = route(endpoint())
    for back_after in (0.1, 0.9, 3.3, 7.0, 60.0, 1000.0):
        router, now = Router(), 0.0
        while now < back_after:
            router.set_aside(only.endpoints[0], now)
            now = router.next_return([only], now) or now
            router.take(only.endpoints[0], now)
            router.give_back(only.endpoints[0])
        assert now - back_after <= 2.0
        router.proven(only.endpoints[0])
        assert router.usable(only, now)
