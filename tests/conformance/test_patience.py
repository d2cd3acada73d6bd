"""Calls that hang, calls that are given up, and a provider that is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from elasticd.provider import Instance, LaunchRequest, Provider, Unavailable
from tests.conformance.subject import Trouble
from tests.conformance.world import World, error_of

Call = Callable[[Provider, Instance, LaunchRequest], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "offerings": lambda provider, machine, request: provider.offerings(),
    "instances": lambda provider, machine, request: provider.instances(),
    "launch": lambda provider, machine, request: provider.launch(request),
    "terminate": lambda provider, machine, request: provider.terminate(machine.instance_id),
}
_WHILE = 0.15
"""Seconds after which a call that has not been answered counts as hanging."""
_SOON = 10.0
"""Seconds within which what is cancelled or closed must have ended, on the busiest host."""


@pytest.mark.parametrize("operation", CALLS)
async def test_a_hung_call_can_be_given_up_at_once_and_the_next_one_works(
    world: World, operation: str
) -> None:
    provider = world.provider()
    machine = await provider.launch(await world.request("1"))
    request = await world.request("2")
    await world.provoke(Trouble.HANGING)
    hung = asyncio.ensure_future(CALLS[operation](provider, machine, request))
    await asyncio.wait([hung], timeout=_WHILE)
    assert not hung.done(), hung
    hung.cancel()
    await asyncio.wait([hung], timeout=_SOON)
    assert hung.cancelled()
    await world.heal()
    assert [i.instance_id for i in await provider.instances()] == [machine.instance_id]
    again = await world.launch(provider, request)
    assert await world.machines("2") == [again.instance_id]


@pytest.mark.parametrize("operation", CALLS)
async def test_closing_ends_a_call_that_hangs_with_an_error_of_the_contract(
    world: World, operation: str
) -> None:
    provider = world.provider()
    machine = await provider.launch(await world.request("1"))
    request = await world.request("2")
    await world.provoke(Trouble.HANGING)
    hung = asyncio.ensure_future(CALLS[operation](provider, machine, request))
    await asyncio.wait([hung], timeout=_WHILE)
    await provider.aclose()
    await asyncio.wait([hung], timeout=_SOON)
    assert hung.done()
    assert isinstance(hung.exception(), Unavailable)


async def test_closing_in_the_middle_of_calls_loses_no_machine(world: World) -> None:
    provider = world.provider()
    requests = [await world.request(str(n)) for n in range(3)]
    calls = [asyncio.ensure_future(provider.launch(request)) for request in requests]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await provider.aclose()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(o, Instance | Unavailable) for o in outcomes), outcomes
    for number, request in enumerate(requests):
        launched = await world.launch(world.provider(), request)
        assert await world.machines(str(number)) == [launched.instance_id]


async def test_a_closed_provider_says_so_and_its_machines_stay(world: World) -> None:
    provider, request = world.provider(), await world.request()
    machine = await provider.launch(request)
    await provider.aclose()
    await provider.aclose()  # and twice is harmless
    for call in CALLS.values():
        assert isinstance(await error_of(call(provider, machine, request)), Unavailable)
    assert await world.machines() == [machine.instance_id]
