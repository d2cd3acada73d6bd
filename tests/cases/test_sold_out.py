"""What is not to be had is left alone for a while; what is to be had is taken at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cases.life import Life, in_virtual_time
from tests.cases.vendor import Ask, Place, Refusal, Vendor

CHEAP_A, CHEAP_B, CHEAP_C = Place("zone-a"), Place("zone-b"), Place("zone-c")
OTHER_C = Place("zone-c", "large", "A10G", 900_000)
CALLS, WINDOW = 10, 600.0
"""So many rents in so many seconds are no hammering."""


def _most_in_a_window(times: list[float]) -> int:
    return max((sum(at <= t < at + WINDOW for t in times) for at in times), default=0)


@in_virtual_time
async def test_alternatives_are_taken_in_the_same_pass_and_what_is_sold_out_is_left_alone(
    vendor: Vendor, tmp_path: Path
) -> None:
    vendor.offer(CHEAP_A, CHEAP_B, OTHER_C)
    vendor.refuse(Refusal.SOLD_OUT, CHEAP_A, CHEAP_B)
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until(lambda: len(vendor.paid()) == 3, "three machines", 10.0)
        assert {machine.place for machine in vendor.paid()} == {("zone-c", "large")}
        await life.until_serving(3)
        for more in range(4, 24):  # one more every half minute
            life.hold(more)
            await asyncio.sleep(30.0)
            assert len(vendor.paid()) == more
        assert life.troubles().keys() == {"stock"}
        assert life.fewest_serving(vendor.now() - WINDOW) >= 3
    for place in (CHEAP_A, CHEAP_B):
        assert _most_in_a_window(vendor.rents_at(place)) <= CALLS


@in_virtual_time
async def test_a_market_without_anything_is_asked_now_and_then_and_taken_when_it_is_back(
    vendor: Vendor, tmp_path: Path
) -> None:
    vendor.offer(CHEAP_A, CHEAP_B, OTHER_C)
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until_serving(3)
        vendor.refuse(Refusal.SOLD_OUT)
        began = vendor.now()
        life.hold(8)
        await asyncio.sleep(3600.0)
        told = life.troubles()["stock"]
        assert "sold out" in told["text"]
        assert told["age"] >= 3500.0
        assert told["seconds_left"] > 0.0
        assert life.fewest_serving(began) == 3  # what serves is not touched
        for place in (CHEAP_A, CHEAP_B, OTHER_C):
            assert _most_in_a_window(vendor.rents_at(place, began)) <= CALLS
        rents = [call.at for call in vendor.calls() if call.ask is Ask.RENT and call.at > began]
        # At first each is asked once or twice, and from then on less and less often.
        assert _most_in_a_window([at for at in rents if at > began + WINDOW]) <= CALLS
        assert len([at for at in rents if at > began + 1800.0]) <= CALLS
        vendor.well()
        await life.until_serving(8, 1900.0)
        assert life.troubles() == {}


@in_virtual_time
async def test_a_family_without_quota_is_left_alone_in_every_zone_and_another_one_is_taken(
    vendor: Vendor, tmp_path: Path
) -> None:
    family = (CHEAP_A, CHEAP_B, CHEAP_C)
    vendor.offer(*family, OTHER_C)
    vendor.refuse(Refusal.NO_QUOTA, *family)
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until(lambda: len(vendor.paid()) == 3, "three of another family", 10.0)
        assert {machine.place for machine in vendor.paid()} == {("zone-c", "large")}
        await life.until_serving(3)
        for more in range(4, 24):
            life.hold(more)
            await asyncio.sleep(30.0)
            assert len(vendor.paid()) == more
        # A launch that worked elsewhere does not say why it did not work there.
        assert life.troubles().keys() <= {"stock", "quota"}
        assert life.troubles()
    for place in family:
        assert _most_in_a_window(vendor.rents_at(place)) <= CALLS


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        (Refusal.SOLD_OUT, "stock"),
        (Refusal.NO_QUOTA, "quota"),
        (Refusal.TOO_DEAR, "price"),
        (Refusal.NO_BALANCE, "billing"),
        (Refusal.BAD_KEY, "auth"),
        (Refusal.INVALID, "rejected"),
    ],
)
@in_virtual_time
async def test_every_refusal_is_told_by_its_own_name_and_asked_again_within_bounds(
    vendor: Vendor, tmp_path: Path, why: Refusal, kind: str
) -> None:
    life = Life(tmp_path, vendor)
    async with life.living():
        await life.until_serving(3)
        vendor.refuse(why)
        began = vendor.now()
        life.hold(4)
        await asyncio.sleep(3600.0)
        assert life.troubles().keys() == {kind}
        assert why.value in life.troubles()[kind]["text"]
        [model] = life.status()["models"]
        assert why.value in model["blocked"]
        rents = [call.at for call in vendor.calls() if call.ask is Ask.RENT and call.at >= began]
        assert len(rents) >= 1
        assert _most_in_a_window(rents) <= 2 * CALLS  # two places
        assert life.fewest_serving(began) == 3


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
@in_virtual_time
async def test_fewer_machines_than_asked_for_are_what_there_is_and_the_rest_is_asked_anew(
    vendor: Vendor, tmp_path: Path, told: bool
) -> None:
    """Two of four, then none; the visibility of the vendor's lists is the longest wait."""
    life = Life(tmp_path, vendor, wanted=4)
    vendor.give_only(2, told=told)
    async with life.living():
        await life.until_serving(2)
        await asyncio.sleep(300.0)
        # No phantom: whatever counts as coming has been asked for just now, or has a machine.
        waiting = life.nodes("requested", "booting")
        assert all(n["instance_id"] or n["phase_age"] < 120.0 for n in waiting), waiting
        assert life.serving == len(vendor.paid()) == 2
        assert life.troubles().keys() == {"stock"}
        vendor.well()
        await life.until_serving(4, 900.0)
        assert vendor.node_with_two_machines() == []
        await asyncio.sleep(120.0)
        assert life.serving == len(vendor.paid()) == 4
        assert {node["phase"] for node in life.nodes()} == {"ready", "gone"}


@in_virtual_time
async def test_what_one_zone_does_not_give_another_zone_gives_at_once(
    vendor: Vendor, tmp_path: Path
) -> None:
    """Two of four come; the other two are answered with an error of their zone alone."""
    vendor.offer(CHEAP_A, CHEAP_B)
    life = Life(tmp_path, vendor, wanted=2)
    async with life.living():
        await life.until_serving(2)
        vendor.refuse(Refusal.SOLD_OUT, CHEAP_A)
        life.hold(4)
        await life.until(lambda: len(vendor.paid()) == 4, "the rest from elsewhere", 10.0)
        assert [m.place[0] for m in vendor.paid()] == ["zone-a", "zone-a", "zone-b", "zone-b"]
