"""Answers that are none: what was known stays, nothing that works is touched or doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Garble, Vendor

READABLE = {Garble.NUMBERS_AS_TEXT, Garble.NO_ADDRESS, Garble.UNKNOWN_STATE, Garble.LISTED_TWICE}
"""The list as such can still be read: it is no outage."""
BELIEVABLE = {Garble.EMPTY, Garble.SHRUNKEN}
"""Nothing about the answer itself shows that it is wrong."""
_LONGEST_LINE = 600


@pytest.mark.parametrize("how", list(Garble), ids=lambda how: how.name.lower())
@in_virtual_time
async def test_a_fleet_serves_on_through_lists_that_are_none(
    vendor: Vendor, tmp_path: Path, how: Garble
) -> None:
    life = Life(tmp_path, vendor, wanted=4)
    with capture_logs() as logs:
        async with life.living():
            await life.until_serving(4)
            vendor.garble(how, Ask.LIST)
            began = vendor.now()
            await asyncio.sleep(600.0)
            assert life.fewest_serving(began) == 4
            assert {node["phase"] for node in life.nodes()} == {"ready"}
            assert vendor.count(Ask.END) == 0
            assert len(vendor.machines()) == 4
            expected = set() if how in READABLE | BELIEVABLE else {"outage"}
            assert life.troubles().keys() == expected
            vendor.well()
            await life.until(lambda: life.troubles() == {}, "a list", 310.0)
            life.hold(5)
            await life.until_serving(5)
    for line in logs:
        for value in line.values():
            assert len(str(value)) < _LONGEST_LINE or line["event"] == "tick", line
            assert "\n" not in str(value), line


@pytest.mark.parametrize("how", list(Garble), ids=lambda how: how.name.lower())
@in_virtual_time
async def test_a_fleet_grows_to_exactly_its_size_whatever_the_answers_to_renting_look_like(
    vendor: Vendor, tmp_path: Path, how: Garble
) -> None:
    life = Life(tmp_path, vendor, wanted=2)
    async with life.living():
        await life.until_serving(2)
        vendor.garble(how, Ask.RENT)
        began = vendor.now()
        life.hold(4)
        await asyncio.sleep(600.0)
        assert life.fewest_serving(began) == 2
        assert len(vendor.machines()) <= 4
        vendor.well()
        await life.until_serving(4, 1900.0)
        await asyncio.sleep(300.0)
        assert len(vendor.paid()) == 4
        assert vendor.node_with_two_machines() == []


@pytest.mark.parametrize("how", list(Garble), ids=lambda how: how.name.lower())
@in_virtual_time
async def test_whatever_every_answer_looks_like_nothing_is_lost_doubled_or_left(
    vendor: Vendor, tmp_path: Path, how: Garble
) -> None:
    """In the middle of growing, with a machine that the market takes, and of shrinking."""
    life = Life(tmp_path, vendor, wanted=3)
    async with life.living():
        await life.until_serving(3)
        life.hold(5)
        await asyncio.sleep(1.0)
        vendor.garble(how)
        await asyncio.sleep(300.0)
        survivors = {machine.id for machine in vendor.paid()[1:3]}
        vendor.take(vendor.paid()[0].id)
        await asyncio.sleep(300.0)
        assert life.serving >= 2
        assert survivors <= {machine.id for machine in vendor.paid()}
        vendor.well()
        await life.until_serving(5, 1900.0)
        await asyncio.sleep(300.0)
        assert len(vendor.paid()) == 5
        assert vendor.node_with_two_machines() == []


@pytest.mark.parametrize(
    "how", [Garble.ERROR_PAGE, Garble.NOT_FOUND_PAGE, Garble.PLAIN_TEXT, Garble.CUT_SHORT]
)
@in_virtual_time
async def test_an_end_that_was_not_clearly_answered_is_asked_for_until_the_machine_is_gone(
    vendor: Vendor, tmp_path: Path, how: Garble
) -> None:
    life = Life(tmp_path, vendor, wanted=1, idle_timeout=60.0)
    async with life.living():
        life.hold(4)
        await life.until_serving(4)
        vendor.garble(how, Ask.END)
        life.hold(1)
        await asyncio.sleep(900.0)
        asked = vendor.count(Ask.END)
        assert 3 <= asked <= 200, asked
        vendor.well()
        await life.until_serving(1, 300.0)


@in_virtual_time
async def test_a_state_that_nobody_has_heard_of_is_never_counted_as_serving(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=2)
    life.cluster.joins = lambda machine: False
    vendor.garble(Garble.UNKNOWN_STATE)
    async with life.living():
        await asyncio.sleep(300.0)
        assert {node["phase"] for node in life.nodes()} == {"booting"}
        assert life.serving == 0
        life.cluster.joins = lambda machine: True
        await life.until_serving(2)
        assert len(vendor.machines()) == 2


@in_virtual_time
async def test_a_machine_without_an_address_serves_as_soon_as_it_is_told(
    vendor: Vendor, tmp_path: Path
) -> None:
    life = Life(tmp_path, vendor, wanted=2)
    vendor.garble(Garble.NO_ADDRESS, Ask.RENT, Ask.LIST, Ask.FIND)
    async with life.living():
        await asyncio.sleep(300.0)
        assert {node["phase"] for node in life.nodes()} == {"booting"}
        vendor.well()
        await life.until_serving(2, 60.0)
        assert len(vendor.machines()) == 2
