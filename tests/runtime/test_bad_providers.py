"""Whatever a provider's module does is its own pool's trouble: no other notices anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from elasticd.core.events import InstancesListed, ListFailed, NoticeArrived, OfferingsListed
from elasticd.provider import (
    InstanceState,
    NoticeKind,
    PreemptionNotice,
    Unavailable,
)
from elasticd.runtime.answers import MOST
from elasticd.runtime.contained import GRACE
from elasticd.runtime.providers import PoolProvider
from tests.runtime.fakes import INSTANCE, OFFERING, FakeProvider, FakeSpotProvider
from tests.runtime.test_pools import REQUEST, Vendor, Yard
from tests.runtime.virtual import LoopClock, settle, virtual

FOR_EVER = 100_000.0
NOTICE = PreemptionNotice("n-1", "i-1", NoticeKind.INTERRUPTION, 120.0)


async def exits() -> Any:
    raise SystemExit(7)


async def interrupts() -> Any:
    raise KeyboardInterrupt


async def cancels_itself() -> Any:
    raise asyncio.CancelledError


async def raises_a_group() -> Any:
    raise BaseExceptionGroup("several", [SystemExit(1), ValueError("x")])


async def never_lets_go() -> Any:
    """As far as anybody waits: it ends when everything else has."""
    now = asyncio.get_running_loop().time
    end = now() + FOR_EVER
    while now() < end:
        try:
            await asyncio.sleep(end - now())
        except asyncio.CancelledError:
            continue


async def blocks() -> Any:
    time.sleep(0.05)
    raise OSError("after it has held up everybody for a moment")


async def goes_on_for_ever() -> Any:
    return iter(lambda: INSTANCE, None)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")


def returns(answer: Any) -> Callable[[], Any]:
    async def give() -> Any:
        return answer

    return give


BAD = {
    "exits": exits,
    "interrupts": interrupts,
    "cancels itself": cancels_itself,
    "raises a group": raises_a_group,
    "never lets go": never_lets_go,
    "blocks": blocks,
    "goes on for ever": goes_on_for_ever,
    "cannot say": NoText(),
    "a page": Unavailable("<html>\n" + "x" * 100_000),
    "no coroutine": lambda: (INSTANCE,),
    "nothing": returns(None),
    "a number": returns(7),
    "text": returns("i-1, i-2"),
    "ids": returns(["i-1"]),
    "dictionaries": returns([{"instance_id": "i-1"}]),
    "a million": returns([INSTANCE] * 1_000_000),
    "an empty id": returns([replace(INSTANCE, instance_id="")]),
    "a number for an id": returns([replace(INSTANCE, instance_id=7)]),
    "an unknown state": returns([replace(INSTANCE, state="hibernating")]),
    "a price as text": returns([replace(INSTANCE, offering=replace(OFFERING, price_micros="1"))]),
    "a time without end": returns([replace(INSTANCE, launched_at=1e999)]),
    "an address of bytes": returns([replace(INSTANCE, address=b"127.0.0.1")]),
    "two of one id": returns([INSTANCE, replace(INSTANCE, state=InstanceState.STOPPING)]),
}


@pytest.mark.parametrize("way", BAD)
@virtual
async def test_a_provider_that_misbehaves_is_its_own_pools_trouble(
    way: str, tmp_path: Path
) -> None:
    yard, bad, well = Yard(tmp_path), Vendor(), Vendor()
    bad.answers = {"instances": BAD[way], "offerings": BAD[way], "aclose": BAD[way]}
    yard.set(bad=bad.config(), well=well.config())
    with capture_logs() as logs:
        async with yard.watched():
            await asyncio.sleep(35.0)
            assert yard.listed().count("well") == 4
            assert "bad" not in yard.listed()
            assert not any(isinstance(e, OfferingsListed) and e.pool == "bad" for e in yard.heard)
    await asyncio.sleep(FOR_EVER)
    failed = [e for e in yard.heard if isinstance(e, ListFailed)]
    assert {e.pool for e in failed} == {"bad"}
    assert {e.what for e in failed} == {"instances", "offerings"}
    for event in failed:
        assert event.error == "Unavailable"
        assert 0 < len(event.message) < 400
        assert "\n" not in event.message
    assert all(len(str(line.get("message", ""))) < 400 for line in logs)


@virtual
async def test_a_call_that_never_lets_go_holds_up_neither_its_caller_nor_the_end() -> None:
    pool = PoolProvider("lab", FakeProvider(launch=never_lets_go), LoopClock())
    launch = asyncio.ensure_future(pool.launch(REQUEST))
    await settle()
    launch.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await launch
    assert asyncio.get_running_loop().time() - began == pytest.approx(GRACE)
    assert pool.health()["under_way"] == 1  # it still runs, and is not forgotten
    await asyncio.sleep(FOR_EVER)
    assert pool.health()["under_way"] == 0


@pytest.mark.parametrize("way", ["exits", "cancels itself", "nothing", "ids", "no coroutine"])
@virtual
async def test_a_launch_that_is_answered_with_nonsense_is_not_known_to_have_failed(
    way: str,
) -> None:
    pool = PoolProvider("lab", FakeProvider(launch=BAD[way]), LoopClock())
    with capture_logs(), pytest.raises(Unavailable, match="'lab': launch"):
        await pool.launch(REQUEST)


@virtual
async def test_a_launch_that_gives_another_nodes_machine_is_not_believed() -> None:
    other = replace(INSTANCE, node_id="node-2")
    pool = PoolProvider("lab", FakeProvider(launch=other), LoopClock())
    with pytest.raises(Unavailable, match="'node-1', it gave the machine of 'node-2'"):
        await pool.launch(REQUEST)


@virtual
async def test_one_machine_that_is_listed_twice_is_one() -> None:
    pool = PoolProvider(
        "lab",
        FakeProvider(instances=(INSTANCE, INSTANCE), offerings=[[OFFERING, OFFERING]]),
        LoopClock(),
    )
    assert await pool.instances() == (INSTANCE,)
    assert await pool.offerings() == (OFFERING,)


@virtual
async def test_the_longest_list_that_is_believed_is_read() -> None:
    many = tuple(replace(INSTANCE, instance_id=f"i-{n}") for n in range(MOST))
    pool = PoolProvider("lab", FakeProvider(instances=many), LoopClock())
    assert await pool.instances() == many


class OddNotices(FakeSpotProvider):
    """Its notices are whatever it was given; a callable is called in place of one."""

    async def notices(self) -> AsyncIterator[Any]:
        self.asked.append(("notices", None))
        for notice in self._notices:
            yield notice() if callable(notice) else notice


def exit_now() -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "soon",
        exit_now,
        replace(NOTICE, notice_id=7),
        replace(NOTICE, instance_id=None),
        replace(NOTICE, seconds_left="120"),
    ],
)
@virtual
async def test_what_is_no_notice_is_left_out_and_the_next_one_counts(
    odd: Any, tmp_path: Path
) -> None:
    yard, bad, well = Yard(tmp_path), Vendor(OddNotices, odd, NOTICE), Vendor()
    yard.set(bad=bad.config(), well=well.config())
    with capture_logs():
        async with yard.watched():
            await asyncio.sleep(15.0)
            assert yard.listed().count("well") == 2
            assert yard.listed().count("bad") == 2
    heard = [e for e in yard.heard if isinstance(e, NoticeArrived)]
    reopened = bad.provider().count("notices")
    assert reopened >= 2
    # One that ends the stream ends what would have come after it, too, and nothing else.
    assert bool(heard) is (odd is not exit_now)


@virtual
async def test_a_stream_that_always_has_a_notice_keeps_nobody_waiting(tmp_path: Path) -> None:
    class Chatty(FakeSpotProvider):
        async def notices(self) -> AsyncIterator[Any]:
            while True:
                yield NOTICE

    yard, bad, well = Yard(tmp_path), Vendor(Chatty), Vendor()
    yard.set(bad=bad.config(), well=well.config())
    async with yard.watched():
        await settle()
        assert yard.listed() == ["bad", "well"]
    assert any(isinstance(e, InstancesListed) for e in yard.heard)


@virtual
async def test_what_the_watch_itself_breaks_on_is_that_pools_trouble(tmp_path: Path) -> None:
    yard, bad, well = Yard(tmp_path), Vendor(FakeSpotProvider, NOTICE), Vendor()
    yard.set(bad=bad.config(), well=well.config())
    bad.provider().notices = exit_now  # type: ignore[method-assign,assignment]
    with capture_logs():
        async with yard.watched():
            await asyncio.sleep(60.0)
            assert yard.listed().count("well") == yard.listed().count("bad") == 6
    broken = [e for e in yard.heard if isinstance(e, ListFailed) and e.what == "notices"]
    assert 2 <= len(broken) <= 12
