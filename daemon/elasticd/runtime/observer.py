"""Watches the providers: their lists and their notices, as events.

Each watch is a task of its own per pool, so one provider that is slow or hangs delays nobody
else. A list that failed becomes `ListFailed`, never an empty list.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from elasticd.core.codec import encode
from elasticd.core.events import (
    Event,
    InstancesListed,
    ListFailed,
    NoticeArrived,
    NoticeTakenBack,
    OfferingsListed,
)
from elasticd.provider import NoticeWithdrawn, PreemptionNotice, ProviderError
from elasticd.runtime.ports import Clock, Emit
from elasticd.runtime.providers import PoolProvider

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchPeriods:
    """Seconds between two lists, and before a stream of notices that broke is opened again."""

    instances: float = 30.0
    offerings: float = 60.0
    notices_retry: float = 5.0


class PoolWatch:
    """Watches one pool. Each `watch_…` runs until it is cancelled."""

    def __init__(
        self, provider: PoolProvider, periods: WatchPeriods, clock: Clock, emit: Emit
    ) -> None:
        self._provider = provider
        self.pool = provider.pool
        self._periods = periods
        self._clock = clock
        self._emit = emit

    @property
    def hears_notices(self) -> bool:
        """Whether there is anything for `watch_notices` to do."""
        return self._provider.has_notices

    async def watch_instances(self) -> None:
        """The pool's machines, every period and soon after each launch and terminate."""
        while True:
            self._emit(await self._list_instances())
            await self._provider.touched.rest(self._periods.instances)

    async def watch_offerings(self) -> None:
        """The pool's prices and stock, every period."""
        while True:
            self._emit(await self._list_offerings())
            await asyncio.sleep(self._periods.offerings)

    async def watch_notices(self) -> None:
        """The provider's notices; returns at once if it has none to give."""
        while (stream := self._provider.notices()) is not None:
            self._emit(await self._follow(stream))
            await asyncio.sleep(self._periods.notices_retry)

    async def _list_instances(self) -> Event:
        asked = self._clock.now()
        try:
            instances = tuple(await self._provider.instances())
            took = self._clock.now() - asked
            return _recordable(InstancesListed(self.pool, instances, took))
        except (ProviderError, ValueError) as error:
            return self._failed("instances", error)

    async def _list_offerings(self) -> Event:
        try:
            offerings = tuple(await self._provider.offerings())
            return _recordable(OfferingsListed(self.pool, offerings))
        except (ProviderError, ValueError) as error:
            return self._failed("offerings", error)

    async def _follow(self, stream: AsyncIterator[PreemptionNotice | NoticeWithdrawn]) -> Event:
        """Emits each notice; returns how the stream ended."""
        try:
            async for notice in stream:
                self._emit(self._heard(notice))
        except Exception as error:  # a provider's generator may break in any way; it is reopened
            _log.warning("notices_broken", pool=self.pool, exc_info=True)
            return self._failed("notices", error)
        return ListFailed(self.pool, "notices", "Unavailable", "the stream of notices ended")

    def _heard(self, notice: PreemptionNotice | NoticeWithdrawn) -> Event:
        if isinstance(notice, NoticeWithdrawn):
            return NoticeTakenBack(notice.notice_id, self.pool, notice.instance_id)
        # A time left that is no number is taken as none left: early is cheaper than late.
        left = max(notice.seconds_left, 0.0) if math.isfinite(notice.seconds_left) else 0.0
        return NoticeArrived(
            notice.notice_id, self.pool, notice.instance_id, str(notice.kind), left
        )

    def _failed(self, what: str, error: Exception) -> ListFailed:
        return ListFailed(self.pool, what, type(error).__name__, str(error) or repr(error))


def _recordable(event: Event) -> Event:
    """Raises `ValueError` for a list with parts that the ledger could not hold (NaN, …)."""
    encode(event)
    return event
