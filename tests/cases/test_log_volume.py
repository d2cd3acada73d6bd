"""An outage fills no log: repeats are folded, and its end is one line with its duration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from elasticd.core.events import DrainRequested
from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Garble, Vendor

pytestmark = pytest.mark.slow

CROWD, MINUTES = 20, 30
MOST_A_MINUTE = 20


@pytest.mark.parametrize(
    "outage",
    [
        lambda vendor: vendor.go_away(),
        lambda vendor: vendor.hang(),
        lambda vendor: vendor.throttle(),
        lambda vendor: vendor.garble(Garble.ERROR_PAGE),
    ],
    ids=["away", "hanging", "throttled", "error pages"],
)
@in_virtual_time
async def test_half_an_hour_of_outage_with_work_to_do_is_a_few_lines_a_minute(
    vendor: Vendor, tmp_path: Path, outage: Callable[[Vendor], None]
) -> None:
    """Twenty nodes; some are to end, one is taken by the market, and more are wanted."""
    life = Life(tmp_path, vendor, wanted=CROWD)
    per_minute: list[int] = []
    with capture_logs() as logs:
        async with life.living():
            await life.until_serving(CROWD)
            await asyncio.sleep(120.0)
            nodes = [node["id"] for node in life.nodes()]
            outage(vendor)
            vendor.take(vendor.paid()[0].id)
            for node_id in nodes[1:5]:
                life.emit(DrainRequested(node_id, 1.0, "test"))
            life.hold(CROWD + 5)
            for _ in range(MINUTES):
                before = len(logs)
                await asyncio.sleep(60.0)
                per_minute.append(len(logs) - before)
            assert life.troubles().keys() & {"outage", "throttled"}
            assert life.serving == CROWD - 5
            began = len(logs)
            vendor.well()
            await life.until_serving(CROWD + 5, 1900.0)
    assert max(per_minute) < MOST_A_MINUTE, (per_minute, [line["event"] for line in logs])
    [again] = [line for line in logs[began:] if line["event"] == "provider_answers_again"]
    assert MINUTES * 60 - 60 <= float(again["after"].removesuffix(" s")) <= MINUTES * 60 + 400


@in_virtual_time
async def test_lists_alone_that_fail_and_recover_all_day_are_told_in_few_lines(
    vendor: Vendor, tmp_path: Path
) -> None:
    """A vendor that stumbles every few minutes is told, not chanted."""
    life = Life(tmp_path, vendor, wanted=CROWD)
    with capture_logs() as logs:
        async with life.living():
            await life.until_serving(CROWD)
            before = len(logs)
            for _ in range(60):
                vendor.garble(Garble.CUT_SHORT, Ask.LIST)
                await asyncio.sleep(40.0)
                vendor.well()
                await asyncio.sleep(80.0)
            lines = len(logs) - before
    assert lines <= 60 * 6, lines
    assert len(vendor.machines()) == CROWD
