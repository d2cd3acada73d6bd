"""What a provider may be able to do besides: notices, drills, boot logs."""

from __future__ import annotations

import pytest

from elasticd.provider import (
    BootLog,
    InstanceNotFound,
    NoticeSource,
    NoticeWithdrawn,
    PreemptionNotice,
    Provider,
    Reclaimable,
)
from tests.conformance.world import World, error_of

_LONG = 3600.0


def _notices(provider: Provider) -> NoticeSource:
    if not isinstance(provider, NoticeSource):
        pytest.skip("this provider hears of no preemption")
    return provider


def _drills(provider: Provider) -> Reclaimable:
    if not isinstance(provider, Reclaimable):
        pytest.skip("this provider has no drill")
    return provider


def _logs(provider: Provider) -> BootLog:
    if not isinstance(provider, BootLog):
        pytest.skip("this provider shows no boot log")
    return provider


async def test_a_notice_names_its_machine_and_is_the_same_one_for_everybody(world: World) -> None:
    provider = world.provider()
    source = _notices(provider)
    machine = await provider.launch(await world.request())
    await world.or_skip(world.subject.give_notice(machine.instance_id, _LONG))
    told = await anext(aiter(source.notices()))
    assert isinstance(told, PreemptionNotice)
    assert told.instance_id == machine.instance_id
    assert 0 < told.seconds_left <= _LONG
    again = await anext(aiter(_notices(world.provider()).notices()))  # as after a crash
    assert isinstance(again, PreemptionNotice)
    assert (again.notice_id, again.kind) == (told.notice_id, told.kind)
    assert again.seconds_left <= told.seconds_left


async def test_a_notice_that_is_taken_back_is_told_so_and_a_new_one_is_another(
    world: World,
) -> None:
    provider = world.provider()
    notices = aiter(_notices(provider).notices())
    machine = await provider.launch(await world.request())
    await world.or_skip(world.subject.give_notice(machine.instance_id, _LONG))
    given = await anext(notices)
    await world.or_skip(world.subject.withdraw_notice(machine.instance_id))
    assert await anext(notices) == NoticeWithdrawn(given.notice_id, machine.instance_id)
    await world.or_skip(world.subject.give_notice(machine.instance_id, _LONG))
    second = await anext(notices)
    assert isinstance(second, PreemptionNotice)
    assert second.notice_id != given.notice_id
    assert await world.machines() == [machine.instance_id]


async def test_closing_ends_the_notices(world: World) -> None:
    provider = world.provider()
    notices = aiter(_notices(provider).notices())
    machine = await provider.launch(await world.request())
    await world.or_skip(world.subject.give_notice(machine.instance_id, _LONG))
    assert isinstance(await anext(notices), PreemptionNotice)
    await provider.aclose()
    assert [notice async for notice in notices] == []


async def test_a_drill_takes_the_machine_as_the_market_would(world: World) -> None:
    provider = world.provider()
    drills = _drills(provider)
    machine = await provider.launch(await world.request())
    await drills.reclaim(machine.instance_id, None)
    await world.until_listed(provider, lambda listed: not listed, "it is taken")
    assert await world.machines() == []
    assert isinstance(await error_of(drills.reclaim("i-0000000000000000", None)), InstanceNotFound)


async def test_a_drill_with_notice_gives_the_notice_first_and_then_takes_the_machine(
    world: World,
) -> None:
    provider = world.provider()
    drills, source = _drills(provider), _notices(provider)
    machine = await provider.launch(await world.request())
    await drills.reclaim(machine.instance_id, 1.0)
    told = await anext(aiter(source.notices()))
    assert isinstance(told, PreemptionNotice)
    assert told.instance_id == machine.instance_id
    await world.until_listed(provider, lambda listed: not listed, "it is taken")
    assert await world.machines() == []


async def test_a_boot_log_is_shown_while_the_machine_is_there_and_after_its_end(
    world: World,
) -> None:
    provider = world.provider()
    logs = _logs(provider)
    machine = await provider.launch(await world.request())

    async def printed() -> str:
        return await logs.boot_log(machine.instance_id)

    before = await world.until(printed, "it has printed something")
    await world.end(provider, machine.instance_id)
    after = await logs.boot_log(machine.instance_id)
    assert after.startswith(before.rstrip())
    assert await _logs(world.provider()).boot_log(machine.instance_id) == after
    assert await logs.boot_log("i-0000000000000000") == ""
