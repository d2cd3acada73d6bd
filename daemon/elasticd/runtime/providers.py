"""What wraps a provider: time limits, rate limit, retries of listings, counters.

A provider module stays free of all this. What leaves here is a `ProviderError`, always: an
exception that a provider should have translated becomes `Unavailable` (outcome unknown), chained.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from elasticd.provider import (
    BootLog,
    Instance,
    LaunchRequest,
    NoticeSource,
    NoticeWithdrawn,
    Offering,
    PreemptionNotice,
    Provider,
    ProviderError,
    RateLimited,
    Reclaimable,
    Unavailable,
)
from elasticd.runtime.call_limits import CallLimits, ReadBackOff, TokenBucket
from elasticd.runtime.call_record import CallRecord
from elasticd.runtime.ports import Clock
from elasticd.runtime.pulse import Pulse

T = TypeVar("T")
_log = structlog.get_logger()


class CannotReclaim(Exception):
    """This provider has no drill: its machines cannot be taken away on request."""


class PoolProvider:
    """A provider as the rest of the controller sees it; itself a `Provider`.

    `touched` is poked after each launch and terminate: the list has probably changed.
    """

    def __init__(
        self, pool: str, provider: Provider, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self.pool = pool
        self._provider = provider
        self._limits = limits or CallLimits()
        self._bucket = TokenBucket(self._limits.rate, self._limits.burst)
        self._record = CallRecord(clock)
        self._under_way = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self.touched = Pulse()

    async def offerings(self) -> Sequence[Offering]:
        """As the provider; asked again within limits while it is busy or away."""
        return await self._read("offerings", self._provider.offerings)

    async def instances(self) -> Sequence[Instance]:
        """As the provider; asked again within limits while it is busy or away."""
        return await self._read("instances", self._provider.instances)

    async def launch(self, request: LaunchRequest) -> Instance:
        """As the provider; asked once."""
        try:
            return await self._call(
                "launch", self._limits.launch_timeout, lambda: self._provider.launch(request)
            )
        finally:
            self.touched.poke()

    async def terminate(self, instance_id: str) -> None:
        """As the provider; asked once."""
        try:
            await self._call(
                "terminate",
                self._limits.terminate_timeout,
                lambda: self._provider.terminate(instance_id),
            )
        finally:
            self.touched.poke()

    async def boot_log(self, instance_id: str) -> str:
        """As the provider; empty where it has no such thing."""
        provider = self._provider
        if not isinstance(provider, BootLog):
            return ""
        return await self._call(
            "boot_log", self._limits.list_timeout, lambda: provider.boot_log(instance_id)
        )

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """A drill. Raises `CannotReclaim` where the provider has none."""
        provider = self._provider
        if not isinstance(provider, Reclaimable):
            raise CannotReclaim(f"the provider of pool {self.pool!r} has no preemption drill")
        await self._call(
            "reclaim",
            self._limits.terminate_timeout,
            lambda: provider.reclaim(instance_id, notice),
        )

    @property
    def has_notices(self) -> bool:
        """Whether the provider hears of preemptions."""
        return isinstance(self._provider, NoticeSource)

    def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn] | None:
        """The provider's own stream of notices, `None` where it has none."""
        return self._provider.notices() if isinstance(self._provider, NoticeSource) else None

    async def retire(self) -> None:
        """Closes as soon as every call under way has its answer: its successor is in use."""
        await self._at_rest.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of connections; an error here is told and harms nobody."""
        try:
            async with asyncio.timeout(self._limits.list_timeout):
                await self._provider.aclose()
        except Exception as error:  # whatever it is, the process is ending
            _log.warning("provider_close_failed", pool=self.pool, error=repr(error))

    def health(self) -> dict[str, Any]:
        """Calls by outcome, last success and last error by operation; JSON-able."""
        return self._record.summary()

    async def _read(
        self, operation: str, call: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        async def once() -> tuple[T, ...]:
            return tuple(await call())

        retrying = AsyncRetrying(
            retry=retry_if_exception(_worth_repeating),
            stop=stop_after_attempt(self._limits.attempts),
            wait=ReadBackOff(self._limits.longest_wait),
            reraise=True,
        )
        return await retrying(self._call, operation, self._limits.list_timeout, once)

    async def _call(self, operation: str, limit: float, call: Callable[[], Awaitable[T]]) -> T:
        self._under_way += 1
        self._at_rest.clear()
        try:
            return await self._counted(operation, limit, call)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._at_rest.set()

    async def _counted(self, operation: str, limit: float, call: Callable[[], Awaitable[T]]) -> T:
        await self._bucket.take()
        try:
            answer = await self._translated(operation, limit, call)
        except ProviderError as error:
            self._record.failed(operation, error)
            if isinstance(error, RateLimited) and error.after is not None:
                self._bucket.pause(min(error.after, self._limits.longest_wait))
            raise
        self._record.worked(operation)
        return answer

    async def _translated(
        self, operation: str, limit: float, call: Callable[[], Awaitable[T]]
    ) -> T:
        where = f"pool {self.pool!r}: {operation}"
        try:
            async with asyncio.timeout(limit) as timer:
                return await call()
        except ProviderError:
            raise
        except TimeoutError as late:
            told = f"no answer within {limit:g} s" if timer.expired() else f"timed out: {late}"
            raise Unavailable(f"{where}: {told}") from late
        except Exception as foreign:
            _log.warning("provider_fault", pool=self.pool, operation=operation, exc_info=True)
            raise Unavailable(f"{where}: {type(foreign).__name__}: {foreign}") from foreign


def _worth_repeating(error: BaseException) -> bool:
    """A hang has already cost its time: the next round asks again."""
    if isinstance(error.__cause__, TimeoutError):
        return False
    return isinstance(error, RateLimited | Unavailable)
