"""A line that repeats is logged once a minute, with how often it came."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from elasticd.ops.repeats import Repeats, alike
from tests.runtime.virtual import virtual


@virtual
async def test_the_first_line_comes_at_once_and_the_rest_as_one_a_minute() -> None:
    repeats = Repeats()
    with capture_logs() as logs:
        for number in range(90):  # an hour and a half, twice a minute
            repeats.tell("warning", "away", "lab", number=number)
            await asyncio.sleep(29.0)
        repeats.close()
    assert logs[0] == {"event": "away", "log_level": "warning", "number": 0}
    assert logs[1] == {"event": "away", "log_level": "warning", "number": 2, "folded": 2}
    assert 40 <= len(logs) <= 46
    assert sum(line.get("folded", 1) for line in logs) == 90


@virtual
async def test_what_ends_tells_the_rest_and_the_next_one_is_new() -> None:
    repeats = Repeats()
    with capture_logs() as logs:
        for _ in range(3):
            repeats.tell("warning", "away", "lab")
        repeats.over("lab")
        repeats.over("lab")
        repeats.tell("warning", "away", "lab")
    assert [line.get("folded", 0) for line in logs] == [0, 2, 0]


@virtual
async def test_after_a_quiet_minute_a_line_is_new() -> None:
    repeats = Repeats()
    with capture_logs() as logs:
        repeats.tell("info", "tick", "a")
        await asyncio.sleep(121.0)
        repeats.tell("info", "tick", "a")
    assert [line.get("folded", 0) for line in logs] == [0, 0]


@virtual
async def test_kinds_without_end_are_folded_together() -> None:
    repeats = Repeats()
    with capture_logs() as logs:
        for number in range(1000):
            repeats.tell("info", "tick", number)
        repeats.close()
    assert len(logs) <= 52
    assert sum(line.get("folded", 1) for line in logs) == 1000


def test_texts_that_differ_in_ids_and_numbers_are_alike() -> None:
    one = alike("node:n-ab12-1-7: no machine came: asked again in 12.5 s")
    other = alike("node:n-ab12-1-19: no machine came: asked again in 9 s")
    assert one == other == "# no machine came: asked again in # s"
    assert alike("pool lab") != alike("pool spot")
