"""A machine is known by its id, never by where it is reached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Vendor

GUARD = 30.0


@in_virtual_time
async def test_a_machine_that_got_the_address_of_a_lost_one_is_never_taken_for_it(
    vendor: Vendor, tmp_path: Path
) -> None:
    """Its predecessor's end is still under way, and its answers come late."""
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until_serving(3)
        for _ in range(5):
            lost = vendor.paid()[0]
            vendor.take(lost.id)
            await life.until_serving(3)
            heir = vendor.machines()[-1]
            assert heir.address == lost.address
            assert heir.node_id != lost.node_id
            nodes = {node["id"]: node for node in life.nodes()}
            assert nodes[lost.node_id]["phase"] == "gone"
            assert nodes[heir.node_id]["phase"] == "ready"
            assert nodes[heir.node_id]["instance_id"] == heir.id
        await asyncio.sleep(300.0)
        assert vendor.paid()[-1].id == heir.id
        assert len(vendor.machines()) == 3 + 5


@in_virtual_time
async def test_a_late_end_of_the_old_machine_leaves_the_new_one_at_its_address_alone(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=1)
    async with life.living():
        await life.until_serving(1)
        [old] = vendor.paid()
        vendor.lose_answers(Ask.END, times=4)
        life.cluster.joins = lambda machine: machine.id != old.id  # it dies for Ray alone
        await life.until(lambda: old.id not in {m.id for m in vendor.paid()}, "its end")
        await life.until_serving(1)
        [new] = vendor.paid()
        life.cluster.joins = lambda machine: True
        served_from = vendor.now()
        await asyncio.sleep(600.0)
        assert [machine.id for machine in vendor.paid()] == [new.id]
        assert life.fewest_serving(served_from) == 1
        assert len(vendor.machines()) == 2


@in_virtual_time
async def test_a_machine_with_our_mark_and_no_node_is_ended_after_the_guard_age_and_said(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor)
    async with life.living():  # a first life, for its ledger's id alone
        await asyncio.sleep(0.0)
    orphan = vendor.plant("node-that-nobody-knows", life.ledger_id)
    began = vendor.now()
    with capture_logs() as logs:
        await _orphan_is_ended(vendor, life, orphan, began)
    told = [why for line in logs if line["event"] == "tick" for why in line["why"]]
    assert any(f"{orphan} is ours and no node stands for it" in why for why in told)


async def _orphan_is_ended(vendor: Vendor, life: Life, orphan: str, began: float) -> None:
    async with life.living():
        await life.until(lambda: life.pool_status()["orphans"], "the orphan", 60.0)
        [told] = life.pool_status()["orphans"]
        assert told["instance_id"] == orphan
        assert told["price_micros"] == 400_000
        await life.until(lambda: orphan not in {m.id for m in vendor.paid()}, "its end", 180.0)
        assert vendor.now() - began >= GUARD
        await life.until_serving(3)
        await life.until(lambda: not life.pool_status()["orphans"], "the list", 60.0)


@pytest.mark.parametrize("node_id", ["node-that-nobody-knows", "n-1"])
@in_virtual_time
async def test_a_machine_of_another_ledger_is_shown_and_never_touched(
    vendor: Vendor, tmp_path: Path, node_id: str
) -> None:
    foreign = vendor.plant(node_id, "ledger-of-somebody-else")
    life = Life(tmp_path, vendor)
    async with life.living():
        await asyncio.sleep(1800.0)
        [told] = life.pool_status()["foreign_machines"]
        assert (told["instance_id"], told["ledger_id"]) == (foreign, "ledger-of-somebody-else")
        assert [machine.id for machine in vendor.paid()] == [foreign]  # and nothing is bought
        assert vendor.count(Ask.END) == 0
        vendor.take(foreign)
        await life.until_serving(3)
