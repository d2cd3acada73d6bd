"""Watches the providers: their lists and their notices, as events.

Each watch is a task of its own per pool, so one provider that is slow or hangs delays nobody
else, and one that breaks its watch is that pool's trouble. A list that failed becomes
`ListFailed`, never an empty list; after failures lists are asked for less and less often.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticd.core.events import (
    Event,
    InstancesListed,
    ListFailed,
    NoticeArrived,
    NoticeTakenBack,
    OfferingsListed,
)
from elasticd.provider import NoticeKind, NoticeWithdrawn, PreemptionNotice, ProviderError
from elasticd.runtime.answers import Malformed, text_of
from elasticd.runtime.call_limits import CALM, ListingPace
from elasticd.runtime.contained import contained, one_line
from elasticd.runtime.eternal import Eternal, again_and_again
from elasticd.runtime.ports import Clock, Emit
from elasticd.runtime.providers import PoolProvider

_CLOSEST = 1.0
"""Seconds between two lists, however many launches and terminates ask for one."""

_OPEN = 30.0
"""Seconds that a stream of notices must stay open until it counts as working."""


@dataclass(frozen=True, slots=True)
class WatchPeriods:
    """Seconds between two lists, and before a stream of notices that broke is opened again.

    `longest`: up to which all of them grow while a provider fails.
    """

    instances: float = 30.0
    offerings: float = 60.0
    notices_retry: float = 5.0
    longest: float = 300.0


class PoolWatch:
    """Watches one pool."""

    def __init__(
        self, provider: PoolProvider, periods: WatchPeriods, clock: Clock, emit: Emit
    ) -> None:
        self._provider = provider
        self._trouble = provider.trouble
        self.pool = provider.pool
        self._periods = periods
        self._clock = clock
        self._emit = emit

    def parts(self) -> dict[str, Eternal]:
        """By what they watch; each runs until it is cancelled, whatever the provider does."""
        watches = {"instances": self._watch_instances, "offerings": self._watch_offerings}
        if self._provider.has_notices:
            watches["notices"] = self._watch_notices
        return {what: partial(self._keep, what, watch) for what, watch in watches.items()}

    async def _keep(self, what: str, watch: Eternal) -> None:
        """A fault of the watch itself is this pool's trouble and nobody else's."""

        def on_fault(fault: Exception) -> None:
            self._trouble.fault(what, fault)
            self._emit(self._failed(what, fault))

        pace = self._pace(self._periods.notices_retry)
        await again_and_again(f"{what} of {self.pool}", watch, on_fault, pace.pause)

    async def _watch_instances(self) -> None:
        """The pool's machines, every period and soon after each launch and terminate."""
        pace = self._pace(self._periods.instances)
        closest = min(_CLOSEST, pace.period / 2)
        while True:
            self._emit(await self._list_instances())
            rest = self._rest("instances", pace)
            await asyncio.sleep(closest)
            # What a launch that failed may have changed is no reason to ask one that is away.
            calm = self._trouble.failures("instances") < CALM
            pulse = self._provider.touched if calm else self._provider.back["instances"]
            await pulse.rest(rest - closest)

    async def _watch_offerings(self) -> None:
        """The pool's prices and stock, every period."""
        pace = self._pace(self._periods.offerings)
        while True:
            self._emit(await self._list_offerings())
            await self._provider.back["offerings"].rest(self._rest("offerings", pace))

    async def _watch_notices(self) -> None:
        """The provider's notices, in one stream after another."""
        pace = self._pace(self._periods.notices_retry)
        while True:
            quiet = asyncio.get_running_loop().call_later(_OPEN, self._trouble.worked, "notices")
            try:
                broken = await self._follow()
            finally:
                quiet.cancel()
            self._trouble.failed("notices", broken)
            self._emit(self._failed("notices", broken))
            await self._provider.back["notices"].rest(self._rest("notices", pace))

    def _pace(self, period: float) -> ListingPace:
        return ListingPace(period, max(period, self._periods.longest))

    def _rest(self, what: str, pace: ListingPace) -> float:
        return max(pace.pause(self._trouble.failures(what)), self._provider.paused_for)

    async def _list_instances(self) -> Event:
        asked = self._clock.now()
        try:
            instances = tuple(await self._provider.instances())
        except ProviderError as error:
            return self._failed("instances", error)
        return InstancesListed(self.pool, instances, self._clock.now() - asked)

    async def _list_offerings(self) -> Event:
        try:
            return OfferingsListed(self.pool, tuple(await self._provider.offerings()))
        except ProviderError as error:
            return self._failed("offerings", error)

    async def _follow(self) -> Exception:
        """Emits each notice; returns how the stream ended."""

        async def pump() -> None:
            stream = self._provider.notices()
            if stream is None:
                raise Malformed("it has no notices to give")
            async for notice in stream:
                self._hear(notice)
                await asyncio.sleep(0)  # one that always has another one keeps nobody waiting

        try:
            await contained(pump, None)
        except Exception as error:  # a provider's generator may break in any way; it is reopened
            return error
        return ConnectionError("the stream of notices ended")

    def _hear(self, notice: Any) -> None:
        """What is no notice is left out; those beside it count."""
        try:
            event = self._heard(notice)
        except Malformed as malformed:
            self._trouble.fault("notices", malformed)
            return
        self._trouble.worked("notices")
        self._emit(event)

    def _heard(self, notice: Any) -> Event:
        """Raises `Malformed`."""
        if not isinstance(notice, PreemptionNotice | NoticeWithdrawn):
            raise Malformed(f"a notice is expected, not {type(notice).__name__}")
        notice_id, instance_id = text_of(notice.notice_id), text_of(notice.instance_id)
        if isinstance(notice, NoticeWithdrawn):
            return NoticeTakenBack(notice_id, self.pool, instance_id)
        kind = str(text_of(notice.kind))
        left = _seconds(notice.seconds_left, kind)
        return NoticeArrived(notice_id, self.pool, instance_id, kind, left)

    def _failed(self, what: str, error: Exception) -> ListFailed:
        foreign = not isinstance(error, ProviderError)
        return ListFailed(
            self.pool, what, "Unavailable" if foreign else type(error).__name__, one_line(error)
        )


def _seconds(left: Any, kind: str) -> float | None:
    """What is no number is taken as none left, early being cheaper than late; but a hint has no end
    unless it tells one."""
    if isinstance(left, int | float) and math.isfinite(left):
        return max(left, 0.0)
    return None if kind == NoticeKind.REBALANCE else 0.0
