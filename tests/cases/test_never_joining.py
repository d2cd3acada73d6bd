"""Machines that run and never join: looked into, given back, paused for, and bounded in money."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Vendor

pytestmark = pytest.mark.slow

HOUR = 3600.0
BOOT = 900.0


@in_virtual_time
async def test_its_last_lines_are_kept_it_is_ended_and_the_pool_pauses_longer_each_time(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=1)
    life.cluster.joins = lambda machine: False
    async with life.living():
        await life.until(vendor.paid, "a machine")
        [first] = vendor.paid()
        vendor.print_line(first.id, "ray: cannot reach the head at 10.0.0.1:6379")
        await life.until(lambda: not vendor.paid(), "its end", BOOT + 60.0)
        await asyncio.sleep(5.0)
        [node] = [node for node in life.nodes() if node["id"] == first.node_id]
        assert node["log_tail"][-1] == "ray: cannot reach the head at 10.0.0.1:6379"
        assert "not up after 900 s" in node["reason"]
        told = life.troubles()["boot"]
        assert "not up after 900 s" in told["text"]
        await asyncio.sleep(3 * HOUR)
        began = [machine.created_at for machine in vendor.machines()]
        ended = [m.ended_at for m in vendor.machines() if m.ended_at is not None]
        pauses = [b - e for b, e in zip(began[1:], ended, strict=False)]
        assert pauses[:4] == sorted(pauses[:4])
        assert pauses[0] >= 10.0
        assert life.troubles()["boot"]["text"].startswith("failed: ")


@in_virtual_time
async def test_two_days_of_it_cost_a_bounded_sum_and_the_pool_is_taken_up_when_they_join(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=3)
    life.report_every = 60.0
    life.cluster.joins = lambda machine: False
    async with life.living():
        await asyncio.sleep(24 * HOUR)
    async with life.living():  # a restart is no new chance
        await asyncio.sleep(24 * HOUR)
        assert len(vendor.machines()) <= 3 + 5 + 16, len(vendor.machines())
        hours = sum(machine.seconds_paid for machine in vendor.machines()) / HOUR
        assert hours <= 24 * (BOOT + 60.0) / HOUR, hours
        assert len([m for m in vendor.machines() if m.created_at > vendor.now() - 24 * HOUR]) <= 8
        life.cluster.joins = lambda machine: True
        await life.until_serving(3, 6.5 * HOUR)
        assert life.troubles() == {}


@in_virtual_time
async def test_one_machine_in_a_crowd_that_never_joins_stops_nobody_else(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=4)
    life.cluster.joins = lambda machine: machine.id != bad
    async with life.living():
        bad = ""
        await life.until(lambda: len(vendor.machines()) == 4, "four machines")
        bad = vendor.machines()[1].id
        await life.until(lambda: life.serving == 3, "three serve")
        began = vendor.now()
        await life.until_serving(4, BOOT + 300.0)
        assert len(vendor.machines()) == 5
        assert life.fewest_serving(began) == 3
        assert life.troubles() == {}
