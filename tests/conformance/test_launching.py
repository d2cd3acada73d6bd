"""A launch makes one machine for its node, whatever happens on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    Instance,
    InstanceNotFound,
    InstanceState,
    NoCapacity,
    PriceTooHigh,
    ProviderError,
    QuotaExceeded,
    Rejected,
)
from tests.conformance.interrupting import cancelled_at
from tests.conformance.subject import Trouble
from tests.conformance.world import LEDGER, World

DEFINITE = (NoCapacity, QuotaExceeded, PriceTooHigh, AuthFailed, BillingBlocked, Rejected)
"""Classes that say that no machine comes of a launch."""
_MOST_AWAITS = 200
_TEXT = (
    "printf '%s\\n' \"it's $HOME `x` \\\\n\" {a,b} <<'E'\nüñí 机器 🙂\tE\nE\n\n# the end, twice\n\n"
)


async def test_the_answer_names_node_ledger_and_offering(world: World) -> None:
    request = await world.request()
    launched = await world.provider().launch(request)
    assert (launched.node_id, launched.ledger_id) == (request.node_id, LEDGER)
    assert launched.offering is not None
    assert launched.offering.id == request.offerings[0].id
    assert await world.machines() == [launched.instance_id]


async def test_in_the_end_a_machine_is_listed_as_running_with_its_address(world: World) -> None:
    provider, request = world.provider(), await world.request()
    launched = await provider.launch(request)

    def running(listed: list[Instance]) -> bool:
        return [i.state for i in listed] == [InstanceState.RUNNING] and bool(listed[0].address)

    (listed,) = await world.until_listed(provider, running, "it runs and has an address")
    assert (listed.instance_id, listed.node_id) == (launched.instance_id, request.node_id)
    assert listed.ledger_id == LEDGER
    assert listed.offering is not None
    assert listed.offering.id == request.offerings[0].id


async def test_two_nodes_get_two_machines(world: World) -> None:
    provider = world.provider()
    first = await provider.launch(await world.request("1"))
    second = await provider.launch(await world.request("2"))
    assert await world.machines("1") == [first.instance_id]
    assert await world.machines("2") == [second.instance_id]


async def test_a_launch_asked_again_gives_the_same_machine_also_after_a_crash_of_the_caller(
    world: World,
) -> None:
    provider, request = world.provider(), await world.request()
    first = await provider.launch(request)
    assert (await provider.launch(request)).instance_id == first.instance_id
    after_the_crash = await world.provider().launch(request)
    assert after_the_crash.instance_id == first.instance_id
    assert (after_the_crash.node_id, after_the_crash.ledger_id) == (request.node_id, LEDGER)
    assert await world.machines() == [first.instance_id]


async def test_a_launch_asked_again_takes_no_other_offering_although_the_first_is_sold_out_now(
    world: World,
) -> None:
    provider, request = world.provider(), await world.request()
    first = await provider.launch(request)
    await world.provoke(Trouble.FIRST_SOLD_OUT)
    assert (await world.provider().launch(request)).instance_id == first.instance_id
    assert await world.machines() == [first.instance_id]


async def test_five_launches_at_once_for_one_node_make_one_machine(world: World) -> None:
    provider, request = world.provider(), await world.request()
    launched = await asyncio.gather(*(provider.launch(request) for _ in range(5)))
    assert len({instance.instance_id for instance in launched}) == 1
    assert await world.machines() == [launched[0].instance_id]


async def test_a_launch_cancelled_at_any_await_is_completed_by_asking_again(world: World) -> None:
    cancelled = 0
    for number in range(1, _MOST_AWAITS):
        provider, request = world.provider(), await world.request(str(number))
        if not await cancelled_at(number, provider.launch(request)):
            break
        cancelled += 1
        launched = await world.launch(provider, request)
        assert (await world.provider().launch(request)).instance_id == launched.instance_id
        assert await world.machines(str(number)) == [launched.instance_id], f"await {number}"
        await world.end(provider, launched.instance_id)
    assert 0 < cancelled < _MOST_AWAITS - 1


async def test_a_launch_whose_answer_was_lost_is_completed_by_asking_again(world: World) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(Trouble.ANSWER_LOST)

    async def made() -> bool:
        return bool(await world.machines())

    await world.unanswered(provider.launch(request), made)
    (machine,) = await world.machines()
    await world.heal()
    assert (await world.launch(world.provider(), request)).instance_id == machine
    assert await world.machines() == [machine]


async def test_a_launch_asked_again_while_lists_lag_makes_no_second_machine(world: World) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(Trouble.LIST_LAG)
    first = await provider.launch(request)
    assert await provider.instances() == []
    for again in (provider, world.provider()):
        assert (await again.launch(request)).instance_id == first.instance_id
    assert await world.machines() == [first.instance_id]


async def test_a_launch_asked_again_after_its_machine_ended_brings_none_back(world: World) -> None:
    if not world.subject.remembers:
        pytest.skip("this vendor forgets a machine as soon as it is gone")
    provider, request = world.provider(), await world.request()
    first = await provider.launch(request)
    await world.end(provider, first.instance_id)
    try:
        repeated = await world.launch(world.provider(), request)
    except InstanceNotFound:
        repeated = replace(first, state=InstanceState.STOPPING)
    assert (repeated.instance_id, repeated.state) == (first.instance_id, InstanceState.STOPPING)
    assert await world.machines() == []


async def test_the_first_of_the_offerings_that_is_to_be_had_is_taken(world: World) -> None:
    provider = world.provider()
    first, second, *_ = await world.offerings()
    preferred = await provider.launch(await world.request("1", (second, first)))
    assert preferred.offering is not None
    assert preferred.offering.id == second.id
    await world.provoke(Trouble.FIRST_SOLD_OUT)
    other = await provider.launch(await world.request("2", (first, second)))
    assert other.offering is not None
    assert other.offering.id == second.id


async def test_an_offering_that_was_not_asked_for_is_never_taken(world: World) -> None:
    provider, (first, *_) = world.provider(), await world.offerings()
    await world.provoke(Trouble.FIRST_SOLD_OUT)
    request = await world.request("1", (first,))
    assert isinstance(await world.refusal(provider, request), NoCapacity)
    await world.heal()
    assert await world.machines() == []


async def test_a_launch_that_delivers_nothing_is_no_capacity_and_leaves_no_phantom(
    world: World,
) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(Trouble.NOTHING_DELIVERED)
    assert isinstance(await world.refusal(provider, request), NoCapacity)
    await world.heal()
    assert await world.machines() == []
    assert await provider.instances() == []


@pytest.mark.parametrize(
    "trouble",
    [Trouble.LATE_DELIVERY, Trouble.LATE_AFTER_ERROR, Trouble.DELIVERED_UNTOLD],
    ids=lambda trouble: trouble.name.lower(),
)
async def test_a_machine_that_comes_unannounced_is_listed_and_was_never_said_not_to_come(
    world: World, trouble: Trouble
) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(trouble)
    (told,) = await asyncio.gather(provider.launch(request), return_exceptions=True)
    assert isinstance(told, Instance | ProviderError)
    assert not isinstance(told, DEFINITE), "these say that no machine will come"
    await world.heal()
    assert len(await world.machines()) == 1, "no second one was made meanwhile"
    (listed,) = await world.until_listed(provider, bool, "the machine came")
    assert (listed.node_id, listed.ledger_id) == (request.node_id, LEDGER)
    assert isinstance(told, ProviderError) or told.instance_id == listed.instance_id
    assert (await world.provider().launch(request)).instance_id == listed.instance_id
    assert await world.machines() == [listed.instance_id]


async def test_of_a_double_delivery_every_machine_is_listed_as_ours(world: World) -> None:
    """What is not listed could never be ended. One is the node's; the other may be nobody's."""
    provider, request = world.provider(), await world.request()
    await world.provoke(Trouble.DELIVERED_TWICE)
    launched = await world.launch(provider, request)
    await world.heal()
    made = await world.all_machines()
    assert launched.instance_id in made
    listed = await world.until_listed(provider, lambda found: len(found) == len(made), "all of it")
    assert {i.instance_id for i in listed} == set(made)
    assert {i.ledger_id for i in listed} == {LEDGER}
    assert request.node_id in {i.node_id for i in listed} <= {request.node_id, None}


async def test_the_bootstrap_script_is_delivered_to_the_letter(world: World) -> None:
    script = "#!/bin/sh\n" + _TEXT * 40 + "exec sleep 987654\n\n"
    launched = await world.provider().launch(await world.request(bootstrap=script))
    assert await world.or_skip(world.subject.bootstrap_of(launched.instance_id)) == script
