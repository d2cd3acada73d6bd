"""A machine that cannot be seen yet is waited for; one that never can be is ended all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Vendor


@pytest.mark.parametrize(
    ("listed", "found", "tagged"),
    [(20.0, 20.0, 30.0), (50.0, 0.0, 0.0), (0.0, 50.0, 0.0), (0.0, 0.0, 300.0)],
    ids=["all late", "lists late", "ids late", "tags late"],
)
@in_virtual_time
async def test_a_machine_that_shows_late_is_neither_replaced_nor_lost(
    vendor: Vendor, tmp_path: Path, listed: float, found: float, tagged: float
) -> None:
    vendor.lag(listed=listed, found=found, tagged=tagged)
    life = Life(tmp_path, vendor)
    async with life.living():
        for _ in range(120):
            await asyncio.sleep(5.0)
            assert len(vendor.machines()) == 3
            assert life.nodes("terminating", "gone") == []
        assert life.serving == 3
        assert vendor.count(Ask.END) == 0
        assert life.pool_status()["orphans"] == []
        assert life.troubles() == {}


@in_virtual_time
async def test_a_restart_before_it_shows_neither_replaces_nor_loses_it(
    vendor: Vendor, tmp_path: Path
) -> None:
    vendor.lag(listed=50.0, found=50.0, tagged=60.0)
    life = Life(tmp_path, vendor)
    for _ in range(4):
        async with life.living():
            await asyncio.sleep(10.0)
    async with life.living():
        await life.until_serving(3)
        assert len(vendor.machines()) == 3
        assert vendor.count(Ask.END) == 0


@in_virtual_time
async def test_an_answer_that_was_lost_and_a_machine_that_shows_late_are_one_machine(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor)
    vendor.lag(listed=40.0, found=40.0)
    vendor.lose_answers(Ask.RENT, times=3)
    async with life.living():
        await life.until_serving(3)
        assert len(vendor.machines()) == 3


@in_virtual_time
async def test_a_machine_that_never_shows_is_lost_after_the_grace_and_still_ended(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until_serving(3)
        before = {machine.id for machine in vendor.machines()}
        life.cluster.joins = lambda machine: machine.id in before
        vendor.lag(listed=1e9)
        life.hold(4)
        await life.until(lambda: len(vendor.machines()) == 4, "a fourth machine")
        [fourth] = [machine.id for machine in vendor.machines() if machine.id not in before]
        grace = 60.0
        await asyncio.sleep(grace - 5.0)
        assert vendor.count(Ask.END) == 0
        assert len(vendor.machines()) == 4
        await life.until(
            lambda: fourth not in {m.id for m in vendor.paid()}, "its end", grace + 120.0
        )
        assert vendor.count(Ask.END) >= 1
        vendor.well()
        life.cluster.joins = lambda machine: True
        await life.until_serving(4, 900.0)
