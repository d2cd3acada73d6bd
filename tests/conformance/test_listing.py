"""A list is whole and says what is there, or it is an error: never empty or short instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.provider import InstanceNotFound, InstanceState, Unavailable
from tests.conformance.subject import Trouble
from tests.conformance.world import LEDGER, POOL, World, error_of

MALFORMED = (
    Trouble.ERROR_PAGE,
    Trouble.NOT_FOUND_PAGE,
    Trouble.PLAIN_TEXT,
    Trouble.CUT_SHORT,
    Trouble.LIST_MISSING,
    Trouble.ENTRY_BROKEN,
)


async def test_machines_of_another_ledger_of_our_cluster_are_listed_as_its_own(
    world: World,
) -> None:
    ours, theirs = world.provider(), world.provider(ledger="ledger-of-theirs")
    mine = await ours.launch(await world.request("1"))
    other = await theirs.launch(await world.request("2", ledger="ledger-of-theirs"))
    listed = {i.instance_id: i.ledger_id for i in await ours.instances()}
    assert listed == {mine.instance_id: LEDGER, other.instance_id: "ledger-of-theirs"}


async def test_machines_of_another_cluster_or_pool_are_not_listed(world: World) -> None:
    ours = world.provider()
    mine = await ours.launch(await world.request("1"))
    cluster = f"{world.cluster}-other"
    elsewhere = world.provider(cluster=cluster)
    await elsewhere.launch(await world.request("2", cluster=cluster))
    beside = world.provider(pool=f"{POOL}-other")
    await beside.launch(await world.request("3", pool=f"{POOL}-other"))
    assert [i.instance_id for i in await ours.instances()] == [mine.instance_id]
    assert len(await world.all_machines()) == 3


async def test_machines_of_one_name_in_two_clusters_are_two_machines(world: World) -> None:
    """A node id is ours alone; two installations may have come to the same one."""
    cluster = f"{world.cluster}-other"
    ours, theirs = world.provider(), world.provider(cluster=cluster)
    mine = await ours.launch(await world.request("1"))
    other = await theirs.launch(await world.request("1", cluster=cluster))
    assert mine.instance_id != other.instance_id
    assert [i.instance_id for i in await ours.instances()] == [mine.instance_id]


async def test_a_machine_that_lists_do_not_show_yet_can_be_ended(world: World) -> None:
    provider = world.provider()
    await world.provoke(Trouble.LIST_LAG)
    launched = await provider.launch(await world.request())
    await world.end(world.provider(), launched.instance_id)
    assert await world.machines() == []


async def test_a_machine_that_is_there_is_never_said_not_to_be_found(world: World) -> None:
    request = await world.request()
    await world.provoke(Trouble.NOT_FOUND_YET)
    provider = world.provider()
    launched = await provider.launch(request)
    try:
        await provider.terminate(launched.instance_id)
    except Unavailable:
        pass  # not known: the same call later
    except InstanceNotFound:
        pytest.fail(f"said to be gone, while the books have {await world.machines()}")
    await world.heal()
    await world.end(provider, launched.instance_id)
    assert await world.machines() == []


async def test_a_state_that_nobody_has_heard_of_is_unknown(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(Trouble.UNKNOWN_STATE)
    (listed,) = await provider.instances()
    assert (listed.instance_id, listed.state) == (launched.instance_id, InstanceState.UNKNOWN)


async def test_a_machine_that_stands_twice_in_a_list_is_one(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(Trouble.LISTED_TWICE)
    assert [i.instance_id for i in await provider.instances()] == [launched.instance_id]


async def test_numbers_that_come_as_text_are_understood_or_an_outage(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(Trouble.NUMBERS_AS_TEXT)
    try:
        (listed,) = await provider.instances()
    except Unavailable:
        return
    assert listed == replace(launched, state=listed.state, address=listed.address)


async def test_a_machine_told_without_its_address_is_listed_without_one(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(Trouble.NO_ADDRESS)
    (listed,) = await provider.instances()
    assert (listed.instance_id, listed.address) == (launched.instance_id, None)


@pytest.mark.parametrize("trouble", MALFORMED, ids=lambda trouble: trouble.name.lower())
async def test_a_malformed_list_is_an_outage_and_never_a_short_list(
    world: World, trouble: Trouble
) -> None:
    provider = world.provider()
    machines = {(await provider.launch(await world.request(n))).instance_id for n in ("1", "2")}
    await world.provoke(trouble)
    error = await error_of(provider.instances())
    assert isinstance(error, Unavailable)
    assert len(str(error)) < 2000, "an answer that is not understood is quoted in short"
    await world.heal()
    assert {i.instance_id for i in await provider.instances()} == machines


@pytest.mark.parametrize("trouble", MALFORMED, ids=lambda trouble: trouble.name.lower())
async def test_a_malformed_answer_to_a_launch_or_a_termination_leaves_the_outcome_open(
    world: World, trouble: Trouble
) -> None:
    """Whatever is answered: a machine is told of, or nothing definite is said."""
    provider = world.provider()
    first = await provider.launch(await world.request("1"))
    request = await world.request("2")
    await world.provoke(trouble)
    for call in (provider.launch(request), provider.terminate(first.instance_id)):
        try:
            await call
        except Unavailable:
            continue
    await world.heal()
    again = await world.launch(world.provider(), request)
    assert await world.machines("2") == [again.instance_id]
    await world.end(provider, first.instance_id)
    assert await world.machines("1") == []


async def test_a_list_of_many_machines_is_whole(world: World) -> None:
    provider = world.provider()
    launched = [await provider.launch(await world.request(str(n))) for n in range(5)]
    assert {i.instance_id for i in await provider.instances()} == {i.instance_id for i in launched}
