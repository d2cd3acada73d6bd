"""What providers say becomes events; what they do not say is never taken for "nothing there"."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.events import (
    Event,
    InstancesListed,
    ListFailed,
    NoticeArrived,
    NoticeTakenBack,
    OfferingsListed,
)
from elasticd.provider import AuthFailed, NoticeKind, NoticeWithdrawn, PreemptionNotice
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.observer import PoolWatch, WatchPeriods
from elasticd.runtime.providers import PoolProvider
from tests.runtime.fakes import INSTANCE, OFFERING, FakeProvider, FakeSpotProvider, hang
from tests.runtime.virtual import LoopClock, settle, virtual

NOTICE = PreemptionNotice("n-1", "i-1", NoticeKind.INTERRUPTION, 120.0)


class Heard(list[tuple[float, Event]]):
    def __call__(self, event: Event) -> None:
        self.append((asyncio.get_running_loop().time(), event))

    def of(self, kind: type) -> list[Any]:
        return [event for _, event in self if isinstance(event, kind)]


def watch(provider: FakeProvider, heard: Heard, name: str = "lab") -> PoolWatch:
    clock = LoopClock()
    pool = PoolProvider(name, provider, clock, CallLimits(list_timeout=30.0))
    return PoolWatch(pool, WatchPeriods(instances=10.0, offerings=60.0), clock, heard)


def watching(pool: PoolWatch, *what: str) -> list[Any]:
    return [pool.parts()[each]() for each in what]


@asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@virtual
async def test_lists_come_at_once_and_then_every_period() -> None:
    heard = Heard()
    pool = watch(FakeProvider(), heard)
    async with running(*watching(pool, "instances", "offerings")):
        await asyncio.sleep(65.0)
    assert [t for t, e in heard if isinstance(e, InstancesListed)] == [0, 10, 20, 30, 40, 50, 60]
    assert [t for t, e in heard if isinstance(e, OfferingsListed)] == [0, 60]
    assert heard.of(InstancesListed)[0] == InstancesListed("lab", (INSTANCE,), 0.0)
    assert heard.of(OfferingsListed)[0] == OfferingsListed("lab", (OFFERING,))


@virtual
async def test_a_list_tells_how_long_it_took() -> None:
    async def slowly() -> Any:
        await asyncio.sleep(4.0)
        return ()

    heard = Heard()
    async with running(*watching(watch(FakeProvider(instances=slowly), heard), "instances")):
        await asyncio.sleep(5.0)
    assert heard.of(InstancesListed) == [InstancesListed("lab", (), pytest.approx(4.0))]


@virtual
async def test_a_failed_list_is_told_as_failed_and_asked_again() -> None:
    heard = Heard()
    broken = FakeProvider(instances=[AuthFailed("expired"), (INSTANCE,)], offerings=OSError("dns"))
    pool = watch(broken, heard)
    async with running(*watching(pool, "instances", "offerings")):
        await asyncio.sleep(15.0)
    failed = heard.of(ListFailed)
    assert failed[0] == ListFailed("lab", "instances", "AuthFailed", "expired")
    assert (failed[1].what, failed[1].error) == ("offerings", "Unavailable")
    assert heard.of(InstancesListed) == [InstancesListed("lab", (INSTANCE,), 0.0)]
    assert heard.of(OfferingsListed) == []


@virtual
async def test_a_list_that_cannot_be_recorded_is_a_failed_list() -> None:
    heard = Heard()
    odd = replace(INSTANCE, launched_at=math.inf)
    async with running(*watching(watch(FakeProvider(instances=(odd,)), heard), "instances")):
        await asyncio.sleep(20.0)
    assert heard.of(InstancesListed) == []
    assert heard.of(ListFailed)[0].what == "instances"


@virtual
async def test_a_provider_that_hangs_delays_no_other() -> None:
    heard = Heard()
    stuck = watch(FakeProvider(instances=hang), heard, "stuck")
    well = watch(FakeProvider(), heard, "well")
    async with running(*watching(stuck, "instances", "offerings"), *watching(well, "instances")):
        await asyncio.sleep(35.0)
    times = [t for t, e in heard if isinstance(e, InstancesListed) and e.pool == "well"]
    assert times == [0, 10, 20, 30]
    assert [e.pool for e in heard.of(OfferingsListed)] == ["stuck"]
    assert [(e.pool, e.error) for e in heard.of(ListFailed)] == [("stuck", "Unavailable")]


@pytest.mark.parametrize("operation", ["launch", "terminate"])
@virtual
async def test_after_a_launch_or_an_end_the_list_is_asked_for_at_once(operation: str) -> None:
    heard = Heard()
    provider = FakeProvider(**{operation: AuthFailed("also when it failed")})
    pool = PoolProvider("lab", provider, LoopClock())
    async with running(*watching(PoolWatch(pool, WatchPeriods(), LoopClock(), heard), "instances")):
        await asyncio.sleep(5.0)
        with pytest.raises(AuthFailed):
            await (pool.launch(None) if operation == "launch" else pool.terminate("i-1"))
        await settle()
    assert [t for t, _ in heard] == [0, 5]


@virtual
async def test_notices_and_their_withdrawal_are_passed_on() -> None:
    heard = Heard()
    provider = FakeSpotProvider(
        NOTICE,
        replace(NOTICE, notice_id="n-2", seconds_left=math.nan),
        replace(NOTICE, notice_id="n-3", seconds_left=-4.0),
        replace(NOTICE, notice_id="n-4", seconds_left=None),
        replace(NOTICE, notice_id="n-5", kind=NoticeKind.REBALANCE, seconds_left=None),
        replace(NOTICE, notice_id="n-6", kind=NoticeKind.REBALANCE, seconds_left=math.inf),
        NoticeWithdrawn("n-1", "i-1"),
    )
    async with running(*watching(watch(provider, heard), "notices")):
        await settle()
    assert heard.of(NoticeArrived) == [
        NoticeArrived("n-1", "lab", "i-1", "interruption", 120.0),
        NoticeArrived("n-2", "lab", "i-1", "interruption", 0.0),
        NoticeArrived("n-3", "lab", "i-1", "interruption", 0.0),
        NoticeArrived("n-4", "lab", "i-1", "interruption", 0.0),
        NoticeArrived("n-5", "lab", "i-1", "rebalance", None),
        NoticeArrived("n-6", "lab", "i-1", "rebalance", None),
    ]
    assert heard.of(NoticeTakenBack) == [NoticeTakenBack("n-1", "lab", "i-1")]


@pytest.mark.parametrize("end", [(), (RuntimeError("queue deleted"),)])
@virtual
async def test_a_stream_of_notices_that_ends_is_told_and_opened_again(end: Any) -> None:
    heard = Heard()
    provider = FakeSpotProvider(NOTICE, *end)
    async with running(*watching(watch(provider, heard), "notices")):
        await asyncio.sleep(12.0)
    assert provider.count("notices") == 3
    assert {failed.what for failed in heard.of(ListFailed)} == {"notices"}


@virtual
async def test_a_provider_without_notices_is_not_watched_for_them() -> None:
    heard = Heard()
    assert list(watch(FakeProvider(), heard).parts()) == ["instances", "offerings"]
    assert list(watch(FakeSpotProvider(), heard).parts())[2:] == ["notices"]
