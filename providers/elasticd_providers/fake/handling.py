"""Takes a call through the desk and does what the desk only tells: waits, hangs, hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticd_providers.fake.calls import Answer, Call
from elasticd_providers.fake.desk import Desk


class HungUp(Exception):
    """The connection is to be closed without an answer."""


async def handle(desk: Desk, call: Call, save: Callable[[], None]) -> Answer:
    """The answer, in its time. `save` is called whenever the desk's state has changed, and always
    before the caller can know that it has.
    """
    fault, record = desk.take(call)
    save()
    effect = None if fault is None else fault.effect
    seconds = 0.0 if fault is None else fault.seconds
    if effect == "dropped":
        raise HungUp
    if effect == "hang":
        await _for_ever()
    if effect == "slow":
        await asyncio.sleep(seconds)
    answer = desk.answer(call, fault, record)
    save()
    if effect == "lost":
        raise HungUp
    if effect == "hang_after":
        await _for_ever()
    if effect == "delayed":
        await asyncio.sleep(seconds)
    return answer


async def _for_ever() -> None:
    await asyncio.Event().wait()
