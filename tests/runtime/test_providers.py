"""Around every provider: bounded time, bounded rate, patience with listings, honest counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elasticd.provider import (
    AuthFailed,
    InstanceNotFound,
    LaunchRequest,
    NoCapacity,
    RateLimited,
    Unavailable,
)
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.providers import CannotReclaim, PoolProvider
from tests.runtime.fakes import INSTANCE, OFFERING, FakeProvider, FakeSpotProvider, hang
from tests.runtime.virtual import LoopClock, settle, virtual

REQUEST = LaunchRequest("node-1", "test", "ledger", (OFFERING,), "#!/bin/sh\n")


def wrapped(provider: FakeProvider, **limits: Any) -> PoolProvider:
    return PoolProvider("lab", provider, LoopClock(), CallLimits(**limits))


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_answers_pass_through() -> None:
    provider = FakeProvider()
    pool = wrapped(provider)
    assert await pool.offerings() == (OFFERING,)
    assert await pool.instances() == (INSTANCE,)
    assert await pool.launch(REQUEST) == INSTANCE
    await pool.terminate("i-1")
    assert provider.asked[2:] == [("launch", REQUEST), ("terminate", "i-1")]


@pytest.mark.parametrize(
    ("operation", "limit", "call"),
    [
        ("launch", "launch_timeout", lambda pool: pool.launch(REQUEST)),
        ("terminate", "terminate_timeout", lambda pool: pool.terminate("i-1")),
        ("instances", "list_timeout", lambda pool: pool.instances()),
        ("offerings", "list_timeout", lambda pool: pool.offerings()),
        ("reclaim", "terminate_timeout", lambda pool: pool.reclaim("i-1", None)),
    ],
)
@virtual
async def test_no_call_outlasts_its_time_limit(operation: str, limit: str, call: Any) -> None:
    provider = FakeSpotProvider(**{operation: hang})
    provider.answers[operation] = hang
    pool = wrapped(provider, **{limit: 7.0})
    with pytest.raises(Unavailable, match=f"'lab': {operation}: no answer within 7 s"):
        await call(pool)
    assert now() == pytest.approx(7.0)
    assert provider.count(operation) == 1  # a hang is not asked again at once


@virtual
async def test_a_listing_is_asked_again_while_the_provider_is_busy_or_away() -> None:
    provider = FakeProvider(instances=[Unavailable("503"), RateLimited("429", 4.0), (INSTANCE,)])
    pool = wrapped(provider)
    assert await pool.instances() == (INSTANCE,)
    assert provider.count("instances") == 3
    assert now() >= 4.0  # it waited for as long as the provider wanted


@virtual
async def test_patience_with_a_listing_is_bounded() -> None:
    provider = FakeProvider(instances=RateLimited("429", 8.0))
    pool = wrapped(provider, attempts=3, longest_wait=10.0)
    with pytest.raises(RateLimited):
        await pool.instances()
    assert provider.count("instances") == 3
    assert now() <= 3 * 10.0


@pytest.mark.parametrize("error", [AuthFailed("denied"), NoCapacity("none")])
@virtual
async def test_a_clear_refusal_of_a_listing_is_not_asked_again(error: Exception) -> None:
    provider = FakeProvider(offerings=error)
    with pytest.raises(type(error)):
        await wrapped(provider).offerings()
    assert provider.count("offerings") == 1


@virtual
async def test_launch_and_terminate_are_asked_once() -> None:
    provider = FakeProvider(launch=Unavailable("503"), terminate=RateLimited("429"))
    pool = wrapped(provider)
    with pytest.raises(Unavailable):
        await pool.launch(REQUEST)
    with pytest.raises(RateLimited):
        await pool.terminate("i-1")
    assert (provider.count("launch"), provider.count("terminate")) == (1, 1)


@virtual
async def test_a_foreign_exception_becomes_unavailable_with_its_cause() -> None:
    original = KeyError("Reservations")
    with pytest.raises(Unavailable, match="KeyError") as caught:
        await wrapped(FakeProvider(launch=original)).launch(REQUEST)
    assert caught.value.__cause__ is original


@virtual
async def test_a_listing_that_is_no_list_is_a_failure_and_not_an_empty_list() -> None:
    pool = wrapped(FakeProvider(instances=[None]))
    with pytest.raises(Unavailable, match="no answer: a list is expected, not None"):
        await pool.instances()


@virtual
async def test_calls_are_spaced_out_after_the_burst() -> None:
    pool = wrapped(FakeProvider(), rate=2.0, burst=3)
    started = []
    for _ in range(7):
        await pool.terminate("i-1")
        started.append(now())
    assert started == pytest.approx([0.0, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0])


@virtual
async def test_a_provider_that_asks_for_a_pause_gets_it_for_every_call() -> None:
    provider = FakeProvider(launch=RateLimited("slow down", 5.0))
    pool = wrapped(provider)
    with pytest.raises(RateLimited):
        await pool.launch(REQUEST)
    await pool.terminate("i-1")
    assert now() == pytest.approx(5.0)


@virtual
async def test_health_tells_calls_by_outcome_and_the_last_error() -> None:
    provider = FakeProvider(
        instances=[AuthFailed("key expired"), (INSTANCE,)], terminate=InstanceNotFound("i-1")
    )
    pool = wrapped(provider)
    with pytest.raises(AuthFailed):
        await pool.instances()
    await asyncio.sleep(3.0)
    await pool.instances()
    with pytest.raises(InstanceNotFound):
        await pool.terminate("i-1")
    await asyncio.sleep(1.0)
    health = pool.health()
    assert health["calls"] == {
        "instances": {"AuthFailed": 1, "ok": 1},
        "terminate": {"InstanceNotFound": 1},
    }
    assert health["ok_age"] == {"instances": pytest.approx(1.0), "terminate": pytest.approx(1.0)}
    assert health["last_error"]["error"] == "AuthFailed"
    assert health["last_error"]["message"] == "key expired"
    assert health["last_error"]["age"] == pytest.approx(4.0)


@virtual
async def test_a_drill_needs_a_provider_that_has_one() -> None:
    provider = FakeSpotProvider()
    await wrapped(provider).reclaim("i-1", 30.0)
    assert provider.asked == [("reclaim", ("i-1", 30.0))]
    with pytest.raises(CannotReclaim, match="'lab' has no preemption drill"):
        await wrapped(FakeProvider()).reclaim("i-1", None)


@virtual
async def test_closing_a_provider_that_fails_or_hangs_ends_all_the_same() -> None:
    await wrapped(FakeProvider(aclose=OSError("gone"))).aclose()
    await wrapped(FakeProvider(aclose=hang), close_timeout=3.0).aclose()
    assert now() == pytest.approx(3.0)


@virtual
async def test_cancelling_is_not_taken_for_an_answer() -> None:
    pool = wrapped(FakeProvider(launch=hang))
    task = asyncio.ensure_future(pool.launch(REQUEST))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.health()["calls"] == {}
