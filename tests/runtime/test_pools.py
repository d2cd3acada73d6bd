"""Pools are opened, replaced and closed under way, and no call to a provider is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.events import Event, InstancesListed, NoticeArrived
from elasticd.core.specs import FleetSpec
from elasticd.provider import LaunchRequest, NoticeKind, PoolContext, PreemptionNotice, Provider
from elasticd.provider import ProviderPlugin as Plugin
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.observer import WatchPeriods
from elasticd.runtime.performer import Identity
from elasticd.runtime.pools import PoolRefused, Pools
from tests.runtime.fakes import INSTANCE, OFFERING, FakeProvider, FakeSpotProvider, fleet_spec
from tests.runtime.virtual import LoopClock, settle, virtual

REQUEST = LaunchRequest("node-1", "test", "ledger", (OFFERING,), "#!/bin/sh\n")
NOTICE = PreemptionNotice("n-1", "i-1", NoticeKind.INTERRUPTION, 120.0)


class Vendor:
    """Makes providers; remembers each with what it was made of."""

    def __init__(self, kind: type[FakeProvider] = FakeProvider, *notices: Any) -> None:
        self.made: list[tuple[PoolContext, Any, FakeProvider]] = []
        self.answers: dict[str, Any] = {}
        self._kind, self._notices = kind, notices
        self.plugin = Plugin(object, self.create)

    def create(self, context: PoolContext, options: Any) -> Provider:
        if isinstance(options, Exception):
            raise options
        provider = self._kind(*self._notices, **self.answers)
        self.made.append((context, options, provider))
        return provider

    def provider(self, number: int = -1) -> FakeProvider:
        return self.made[number][2]

    def config(self, options: Any = None) -> PoolConfig:
        return PoolConfig(self.plugin, options, periods=WatchPeriods(10.0, 60.0, 5.0))


def fleet(*names: str) -> FleetSpec:
    plain = fleet_spec()
    return replace(plain, pools=tuple(replace(plain.pools[0], name=name) for name in names))


class Yard:
    def __init__(self, state_dir: Path) -> None:
        self.heard: list[Event] = []
        self.pools = Pools(Identity("c", "l"), state_dir, LoopClock(), self.heard.append)

    def set(self, **configs: PoolConfig) -> None:
        self.pools.apply(self.pools.prepare(fleet(*configs), configs))

    def listed(self) -> list[str]:
        return [event.pool for event in self.heard if isinstance(event, InstancesListed)]

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.pools.run())
        try:
            await settle()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.pools.aclose()


@virtual
async def test_a_pool_that_is_new_is_opened_and_watched_at_once(tmp_path: Path) -> None:
    yard, vendor = Yard(tmp_path), Vendor()
    yard.set(a=vendor.config())
    async with yard.watched():
        yard.set(a=vendor.config(), b=vendor.config())
        await settle()
        assert yard.listed() == ["a", "b"]
        assert list(yard.pools.providers) == ["a", "b"]
    contexts = [context for context, _, _ in vendor.made]
    assert [c.state_dir for c in contexts] == [tmp_path / "pools" / name for name in "ab"]
    assert contexts[0].state_dir.stat().st_mode & 0o777 == 0o700
    assert [p.count("aclose") for _, _, p in vendor.made] == [1, 1]


@virtual
async def test_a_pool_that_stays_the_same_is_left_alone(tmp_path: Path) -> None:
    yard, vendor = Yard(tmp_path), Vendor()
    yard.set(a=vendor.config({"region": "north"}))
    async with yard.watched():
        before = yard.pools.providers["a"]
        yard.set(a=vendor.config({"region": "north"}))
        await settle()
        assert yard.pools.providers["a"] is before
        assert len(vendor.made) == 1
        assert yard.listed() == ["a"]


@virtual
async def test_changed_options_make_a_new_provider_and_the_call_under_way_gets_its_answer(
    tmp_path: Path,
) -> None:
    async def slow() -> Any:
        await asyncio.sleep(50.0)
        return INSTANCE

    yard, vendor = Yard(tmp_path), Vendor()
    vendor.answers["launch"] = slow
    yard.set(a=vendor.config({"region": "north"}))
    async with yard.watched():
        launch = asyncio.ensure_future(yard.pools.providers["a"].launch(REQUEST))
        await settle()
        yard.set(a=vendor.config({"region": "south"}))
        await settle()
        assert vendor.made[1][1] == {"region": "south"}
        assert vendor.provider(0).count("aclose") == 0  # its call is still under way
        assert await launch == INSTANCE
        await settle()
        assert vendor.provider(0).count("aclose") == 1
        asked = vendor.provider(0).count("instances")
        await asyncio.sleep(30.0)
        assert vendor.provider(0).count("instances") == asked  # nobody watches it any more
        assert vendor.provider(1).count("instances") >= 3


@virtual
async def test_other_gpu_kinds_of_a_pool_make_a_new_provider_too(tmp_path: Path) -> None:
    yard, vendor = Yard(tmp_path), Vendor()
    yard.set(a=vendor.config())
    async with yard.watched():
        spec = fleet("a")
        kinds = replace(spec, pools=(replace(spec.pools[0], accelerators=("L4",)),))
        yard.pools.apply(yard.pools.prepare(kinds, {"a": vendor.config()}))
        await settle()
        assert [c.accelerators for c, _, _ in vendor.made] == [(), ("L4",)]


@virtual
async def test_the_notices_of_a_replaced_provider_are_followed_on_the_new_one(
    tmp_path: Path,
) -> None:
    yard, vendor = Yard(tmp_path), Vendor(FakeSpotProvider, NOTICE)
    yard.set(a=vendor.config(1))
    async with yard.watched():
        yard.set(a=vendor.config(2))
        await settle()
        assert vendor.provider(1).count("notices") == 1
        assert sum(isinstance(event, NoticeArrived) for event in yard.heard) == 2
        opened = vendor.provider(0).count("notices")
        await asyncio.sleep(30.0)
        assert vendor.provider(0).count("notices") == opened


@virtual
async def test_a_pool_that_vanishes_is_closed_and_heard_of_no_more(tmp_path: Path) -> None:
    yard, vendor = Yard(tmp_path), Vendor()
    yard.set(a=vendor.config(), b=vendor.config())
    async with yard.watched():
        yard.set(b=vendor.config())
        await settle()
        yard.heard.clear()
        await asyncio.sleep(30.0)
        assert set(yard.listed()) == {"b"}
        assert list(yard.pools.providers) == ["b"]
        assert vendor.provider(0).count("aclose") == 1


@virtual
async def test_one_provider_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    yard, vendor = Yard(tmp_path), Vendor()
    yard.set(a=vendor.config(1))
    async with yard.watched():
        with pytest.raises(PoolRefused, match="pool 'b' cannot be opened: no key"):
            yard.set(a=vendor.config(2), b=vendor.config(ValueError("no key")))
        await settle()
        assert list(yard.pools.providers) == ["a"]
        assert vendor.provider(0).count("aclose") == 0
        assert vendor.provider(1).count("aclose") == 1  # made, and not wanted then


@virtual
async def test_closing_does_not_wait_for_a_call_that_hangs(tmp_path: Path) -> None:
    async def hang() -> Any:
        await asyncio.Event().wait()

    yard, vendor = Yard(tmp_path), Vendor()
    vendor.answers["launch"] = hang
    yard.set(a=vendor.config(1))
    launch = asyncio.ensure_future(yard.pools.providers["a"].launch(REQUEST))
    await settle()
    yard.set(a=vendor.config(2))
    await settle()
    await yard.pools.aclose()
    assert [p.count("aclose") for _, _, p in vendor.made] == [1, 1]
    launch.cancel()
    await asyncio.gather(launch, return_exceptions=True)
