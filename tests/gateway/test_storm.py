"""Replicas are killed under streams: the short form of `tests/bench/storm_bench.py`."""

from __future__ import annotations

import pytest

from tests.bench.storm_bench import measure, shortcomings

pytestmark = pytest.mark.slow


async def test_streams_whose_replicas_are_killed_all_day_are_exact_and_cost_no_memory() -> None:
    told = await measure(streams=60, kills=6, seed=5)
    assert shortcomings(told) == [], told["faults"]
    assert told["continued"] >= 20
