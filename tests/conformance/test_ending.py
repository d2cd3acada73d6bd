"""Terminate until gone: a machine is said not to be found when it is not, and not before."""

from __future__ import annotations

import asyncio

from elasticd.provider import InstanceNotFound
from tests.conformance.interrupting import cancelled_at
from tests.conformance.subject import Trouble
from tests.conformance.world import World, error_of

_MOST_AWAITS = 200


async def test_terminating_ends_with_not_found_and_then_nothing_is_left(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request("1"))
    stays = await provider.launch(await world.request("2"))
    await world.end(provider, launched.instance_id)
    assert await world.machines("1") == []
    assert await world.machines("2") == [stays.instance_id]
    await world.until_listed(
        provider,
        lambda listed: [i.instance_id for i in listed] == [stays.instance_id],
        "the list has the other one alone",
    )
    assert isinstance(await error_of(provider.terminate(launched.instance_id)), InstanceNotFound)


async def test_terminating_a_machine_that_never_was_is_not_found(world: World) -> None:
    provider = world.provider()
    error = await error_of(provider.terminate("i-0000000000000000"))
    assert isinstance(error, InstanceNotFound)
    assert "i-0000000000000000" in str(error), "it names what is not there"


async def test_terminating_twice_at_once_and_again_later_is_harmless(world: World) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    outcomes = await asyncio.gather(
        provider.terminate(launched.instance_id),
        world.provider().terminate(launched.instance_id),
        return_exceptions=True,
    )
    assert all(o is None or isinstance(o, InstanceNotFound) for o in outcomes), outcomes
    await world.end(provider, launched.instance_id)
    assert await world.machines() == []


async def test_a_termination_whose_answer_was_lost_is_completed_by_asking_again(
    world: World,
) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(Trouble.ANSWER_LOST)

    async def gone() -> bool:
        return not await world.machines()

    # A client library may have asked again by itself, and then it is known.
    await world.unanswered(provider.terminate(launched.instance_id), gone, InstanceNotFound)
    await world.heal()
    await world.end(world.provider(), launched.instance_id)
    assert await world.machines() == []


async def test_a_termination_cancelled_at_any_await_is_completed_by_asking_again(
    world: World,
) -> None:
    provider = world.provider()
    for number in range(1, _MOST_AWAITS):
        launched = await provider.launch(await world.request(str(number)))
        reached = await cancelled_at(number, _ended(provider.terminate(launched.instance_id)))
        await world.end(provider, launched.instance_id)
        assert await world.machines(str(number)) == []
        if not reached:
            break
    assert 1 < number < _MOST_AWAITS - 1


async def _ended(call: object) -> None:
    try:
        await call  # type: ignore[misc]
    except InstanceNotFound:
        return
