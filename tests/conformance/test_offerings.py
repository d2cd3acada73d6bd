"""What could be rented is told in full, and under names that stay."""

from __future__ import annotations

from elasticd.provider import NoCapacity
from tests.conformance.subject import Trouble
from tests.conformance.world import POOL, World


async def test_offerings_belong_to_the_pool_and_have_different_ids(world: World) -> None:
    offered = list(await world.provider().offerings())
    assert {offering.pool for offering in offered} == {POOL}
    assert len({offering.id for offering in offered}) == len(offered) >= 2
    assert all(offering.price_micros >= 0 and offering.gpu_count >= 0 for offering in offered)
    assert all(len(offering.currency) == 3 and offering.available for offering in offered)


async def test_sold_out_offerings_are_told_and_keep_their_ids(world: World) -> None:
    provider = world.provider()
    before = [offering.id for offering in await provider.offerings()]
    await world.provoke(Trouble.SOLD_OUT)
    sold_out = list(await provider.offerings())
    assert [offering.id for offering in sold_out] == before
    assert not any(offering.available for offering in sold_out)
    assert isinstance(await world.refusal(provider, await world.request()), NoCapacity)
    await world.heal()
    again = list(await world.provider().offerings())
    assert [offering.id for offering in again] == before
    assert all(offering.available for offering in again)
