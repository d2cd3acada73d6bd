"""Healthy is not enough: an engine that has work and does not move stands still. Virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticd.ray_side.progress import Counters, Progress, read_counters

METRICS = """# HELP vllm:num_requests_running running
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 400.0
vllm:generation_tokens_total{engine="0"} 1.5e+03
vllm:prompt_tokens_total{engine="0"} 90.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:generation_tokens_created{engine="0"} 1.7e+09
"""


def test_counters_are_added_over_their_labels_and_not_mixed_up() -> None:
    assert read_counters(METRICS) == Counters(
        running=3, waiting=4, generated=1500, prompt=90, cache=0.5
    )


def test_an_engine_without_these_counters_tells_nothing() -> None:
    assert read_counters("other_total 1\n") == Counters()


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_counter_that_is_no_number_is_not_known(value: str) -> None:
    assert read_counters(f"vllm:num_requests_running {value}\n").running is None


BUSY = Counters(running=1, waiting=0, generated=10, prompt=50, cache=0.25)
Seen = Callable[[int], Counters | None]


def _watched(seen: Seen, seconds: int = 180) -> list[float | None]:
    """What is said in each second of an engine that shows `seen(second)`."""
    progress = Progress()
    return [progress.observe(float(second), seen(second)) for second in range(seconds)]


def test_an_engine_with_requests_and_no_tokens_stands_still_for_all_that_time() -> None:
    assert _watched(lambda second: BUSY) == [float(second) for second in range(180)]


def test_requests_that_wait_while_none_runs_stand_still_too() -> None:
    said = _watched(lambda second: replace(BUSY, running=0, waiting=3))
    assert said[-1] == 179.0


def test_an_idle_engine_never_stands_still() -> None:
    assert set(_watched(lambda second: replace(BUSY, running=0))) == {None}


@pytest.mark.parametrize("sign", ["cache", "prompt"])
def test_a_huge_prompt_that_is_read_for_ninety_seconds_is_progress(sign: str) -> None:
    """No token appears meanwhile; the cache fills up, or the counter of prompt tokens grows."""

    def seen(second: int) -> Counters:
        part = min(second, 90) // 3
        grown = replace(BUSY, cache=part / 100) if sign == "cache" else replace(BUSY, prompt=part)
        return grown if second <= 90 else replace(grown, generated=10 + second)

    assert max(said or 0.0 for said in _watched(seen)) <= 3.0


def test_a_token_ends_a_standstill_and_the_next_one_is_counted_from_there() -> None:
    said = _watched(lambda second: replace(BUSY, generated=10 if second < 100 else 11))
    assert said[99] == 99.0
    assert said[100] == 0.0
    assert said[-1] == 79.0


def test_a_new_burst_of_requests_starts_from_nothing() -> None:
    said = _watched(lambda second: BUSY if second != 100 else replace(BUSY, running=0))
    assert said[100] is None
    assert said[101] == 0.0


def test_counters_that_are_not_told_end_no_standstill() -> None:
    said = _watched(lambda second: BUSY if second < 10 else None)
    assert said[-1] == 179.0


def test_nothing_is_said_of_an_engine_that_never_told_its_counters() -> None:
    assert set(_watched(lambda second: None)) == {None}
    assert set(_watched(lambda second: Counters(running=1))) == {None}
