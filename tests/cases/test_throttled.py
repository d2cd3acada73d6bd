"""A vendor that is asked too often is asked less; what was known stays and is shown to be old."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Vendor

pytestmark = pytest.mark.slow

CROWD = 60
OUTAGE = 300.0


@pytest.mark.parametrize(
    ("asks", "after"),
    [((Ask.LIST,), None), ((Ask.LIST,), 20.0), ((Ask.LIST,), 3600.0), ((), None)],
    ids=["lists", "lists for 20 s", "lists for an hour", "everything"],
)
@in_virtual_time
async def test_sixty_nodes_go_on_through_five_minutes_of_throttling(
    vendor: Vendor, tmp_path: Path, asks: tuple[Ask, ...], after: float | None
) -> None:
    life = Life(tmp_path, vendor, wanted=CROWD)
    async with life.living():
        await life.until_serving(CROWD)
        await asyncio.sleep(60.0)
        vendor.throttle(*asks, after=after)
        began = vendor.now()
        await asyncio.sleep(OUTAGE)
        asked = [call.at for call in vendor.calls() if call.ask is Ask.LIST and call.at >= began]
        assert life.pool_status()["listed_age"] >= OUTAGE - 31.0
        if after != 3600.0:  # asked once, and then left alone for as long as it wants
            assert life.troubles().keys() == {"throttled"}
        assert life.fewest_serving(began) == CROWD
        assert {node["phase"] for node in life.nodes()} == {"ready"}
        assert vendor.count(Ask.END) == 0
        assert len(vendor.machines()) == CROWD
        assert 1 <= len(asked) <= 16, asked
        vendor.well()
        await life.until(
            lambda: life.pool_status()["listed_age"] < 31.0, "lists again", OUTAGE + 60.0
        )
        assert life.troubles() == {}
        life.hold(CROWD + 1)
        await life.until_serving(CROWD + 1)


@in_virtual_time
async def test_pauses_grow_with_jitter_and_a_list_is_one_call_a_page(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=CROWD)
    async with life.living():
        await life.until_serving(CROWD)
        vendor.throttle(Ask.LIST)
        began = vendor.now()
        await asyncio.sleep(3 * 3600.0)
        asked = [call.at for call in vendor.calls() if call.ask is Ask.LIST and call.at >= began]
        pauses = [after - before for before, after in pairwise(asked)][-25:]
        assert max(pauses) <= 301.0
        assert min(pauses) >= 100.0
        assert len({round(pause, 2) for pause in pauses}) > 15
        vendor.well()
        await life.until(lambda: life.troubles() == {}, "lists again", 310.0)
        well = vendor.now()
        await asyncio.sleep(600.0)
        lists = vendor.count(Ask.LIST, well)
        assert lists <= 2 * 21, lists  # of 60 machines two pages, however many nodes there are


@in_virtual_time
async def test_a_machine_that_goes_while_lists_are_throttled_is_replaced_when_they_come_back(
    vendor: Vendor, tmp_path: Path
) -> None:
    """Ray alone says so, and one source is enough to close its route, not to buy anew."""
    life = Life(tmp_path, vendor, wanted=5)
    async with life.living():
        await life.until_serving(5)
        vendor.throttle()
        await asyncio.sleep(200.0)
        vendor.take(vendor.paid()[0].id)
        await asyncio.sleep(60.0)
        assert life.serving == 4
        assert len(vendor.machines()) == 5
        vendor.well()
        await life.until_serving(5, 900.0)
        assert len(vendor.machines()) == 6
