"""Which requests leave a replica before it is cut, and when."""

from __future__ import annotations

import itertools

import pytest

from elasticd.traffic.leaving import LAST, Running, leaving, needed, pace

SLOW = Running(begun=True, emitted=20, here=20, seconds=2.0, most=1000)
"""Ten tokens a second, 98 seconds to go."""
QUICK = Running(begun=True, emitted=20, here=20, seconds=2.0, most=40)
"""Two seconds to go."""
NEW = Running()


def moments(running: list[Running], left: float, tick: float = 0.1) -> list[tuple[float, Running]]:
    """When each of them leaves, in seconds from now, looked at as the gateway does."""
    out: list[tuple[float, Running]] = []
    now = since = 0.0
    while running and now < left:
        gone = leaving(running, left - now, now - since)
        out += [(round(now, 3), running[i]) for i in gone]
        if gone:
            since = now
        running = [r for i, r in enumerate(running) if i not in gone]
        now += tick
    return out


def test_what_is_done_before_the_cut_stays() -> None:
    assert leaving([QUICK] * 3, left=LAST + 2.5, waited=60.0) == []
    assert leaving([QUICK] * 3, left=LAST + 1.5, waited=60.0) == [0, 1, 2]


def test_what_is_not_done_in_time_leaves_one_by_one_and_all_before_the_cut() -> None:
    gone = [at for at, _ in moments([SLOW] * 9, left=21.0)]
    assert len(gone) == 9
    assert gone[-1] <= 21.0 - LAST
    assert gone[0] >= 1.0, "not all at once when it becomes known"
    assert max(b - a for a, b in itertools.pairwise(gone)) < 5.0
    assert len(set(gone)) == 9


def test_the_longest_leaves_first() -> None:
    longest = Running(begun=True, emitted=20, here=20, seconds=2.0, most=5000)
    order = [r for _, r in moments([SLOW, longest, SLOW], left=30.0)]
    assert order[0] is longest


def test_what_has_not_begun_leaves_last_for_it_starts_anew_anyway() -> None:
    assert moments([NEW, SLOW], left=10.0)[0][1] is SLOW
    assert leaving([NEW], left=LAST + 0.01, waited=100.0) == []
    assert leaving([NEW], left=LAST, waited=0.0) == [0]


@pytest.mark.parametrize("left", [LAST, 0.3, 0.0, -5.0])
def test_at_the_last_moment_everything_leaves(left: float) -> None:
    assert leaving([QUICK, SLOW, NEW], left, 0.0) == [0, 1, 2]


def test_the_pace_is_that_of_all_streams_of_the_replica() -> None:
    fast = Running(begun=True, here=300, seconds=3.0)
    assert pace([SLOW, fast]) == pytest.approx(320 / 5.0)
    assert pace([Running(begun=True, here=3, seconds=0.1)]) is None
    assert pace([]) is None


def test_an_answer_without_a_limit_takes_as_long_as_answers_usually_do() -> None:
    usual = Running(begun=True, emitted=500, here=500, seconds=50.0, usual=100.0)
    assert needed(usual, 10.0) == 10.0
    limited = Running(begun=True, emitted=500, here=500, seconds=50.0, usual=100.0, most=520)
    assert needed(limited, 10.0) == 2.0


def test_what_cannot_be_said_is_not_taken_for_done_in_time() -> None:
    assert needed(Running(begun=True, emitted=5), 10.0) == float("inf")
    assert needed(SLOW, None) == float("inf")
