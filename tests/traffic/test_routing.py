"""Promises of the router."""

from __future__ import annotations

import pytest

from elasticd.routing_table import Tier
from elasticd.traffic.routing import Ejection, Router, replica_key
from tests.traffic.tables import endpoint, route, table

NOBODY: frozenset[tuple[str, int]] = frozenset()


def test_the_least_loaded_replica_for_its_slots_and_weight_is_taken() -> None:
    small, large = endpoint("a", slots=2), endpoint("b", slots=10)
    heavy = endpoint("c", slots=10, weight=2.0)
    router = Router()
    for e in (small, large, large, heavy, heavy):
        router.take(e)
    assert router.choose(route(small, large, heavy), NOBODY, 0.0) == heavy


def test_ties_break_by_id() -> None:
    router = Router()
    assert router.choose(route(endpoint("b"), endpoint("a")), NOBODY, 0.0) == endpoint("a")


def test_a_full_replica_is_never_taken() -> None:
    only = endpoint(slots=1)
    router = Router()
    router.take(only)
    assert router.choose(route(only), NOBODY, 0.0) is None
    with pytest.raises(ValueError, match="no free slot"):
        router.take(only)


def test_a_last_resort_waits_behind_a_full_open_replica() -> None:
    open_, last = endpoint("a", slots=1), endpoint("b", tier=Tier.LAST_RESORT)
    router = Router()
    router.take(open_)
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
    router.take(second)
    tried = frozenset({replica_key(first)})
    assert router.choose(route(first, second), tried, 0.0) is None
    router.give_back(second)
    assert router.choose(route(first, second), tried, 0.0) == second


def test_a_tried_replica_is_asked_again_when_it_is_the_only_one() -> None:
    only = endpoint()
    router = Router()
    assert router.choose(route(only), frozenset({replica_key(only)}), 0.0) == only


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
    router.take(gone)
    router.follow(table(route(listed)))
    assert router.loads(table(route(listed))) == {"gone": 1, "listed": 0}
    router.give_back(gone)
    router.follow(table(route(listed)))
    assert router.loads(table(route(listed))) == {"listed": 0}
