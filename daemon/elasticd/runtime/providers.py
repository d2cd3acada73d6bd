"""What wraps a provider: time limits, its turn, retries of listings, checks of answers, counters.

A provider module stays free of all this. What leaves here is a `ProviderError`, always, with a
message of one line: an exception that a provider should have translated, and an answer that is
none, become `Unavailable` (outcome unknown), chained.
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
from elasticd.runtime.answers import Malformed, instances_of, launched, offerings_of, text_of
from elasticd.runtime.call_limits import CallLimits, ReadBackOff, wanted_pause
from elasticd.runtime.call_queue import CallQueue, Turn
from elasticd.runtime.call_record import CallRecord
from elasticd.runtime.contained import NotAnswered, contained, one_line
from elasticd.runtime.pool_trouble import PoolTrouble
from elasticd.runtime.ports import Clock
from elasticd.runtime.pulse import Pulse

T = TypeVar("T")
_log = structlog.get_logger()


class CannotReclaim(Exception):
    """This provider has no drill: its machines cannot be taken away on request."""


class PoolProvider:
    """A provider as the rest of the controller sees it; itself a `Provider`.

    `touched` is poked after each launch and terminate: the list has probably changed. When
    anything that had failed works again, the provider is back, and `back` of all that still fails
    is poked: it need not rest for as long as during an outage.
    """

    def __init__(
        self, pool: str, provider: Provider, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self.pool = pool
        self._provider = provider
        self._limits = limits or CallLimits()
        self._queue = CallQueue(self._limits.rate, self._limits.burst, self._limits.at_once)
        self._record = CallRecord(clock)
        self._under_way = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self.trouble = PoolTrouble(pool, clock)
        self.touched = Pulse()
        self.back = {what: Pulse() for what in ("instances", "offerings", "notices")}
        self._change_failed = False

    async def offerings(self) -> Sequence[Offering]:
        """As the provider; asked again within limits while it is busy or away."""

        async def once() -> tuple[Offering, ...]:
            return offerings_of(await self._provider.offerings())

        return await self._read("offerings", once)

    async def instances(self) -> Sequence[Instance]:
        """As the provider; asked again within limits while it is busy or away."""

        async def once() -> tuple[Instance, ...]:
            return instances_of(await self._provider.instances())

        return await self._read("instances", once)

    async def launch(self, request: LaunchRequest) -> Instance:
        """As the provider; asked once."""

        async def once() -> Instance:
            return launched(await self._provider.launch(request), request.node_id)

        return await self._change(Turn.RENTING, "launch", self._limits.launch_timeout, once)

    async def terminate(self, instance_id: str) -> None:
        """As the provider; asked once."""
        limit = self._limits.terminate_timeout
        await self._change(
            Turn.ENDING, "terminate", limit, lambda: self._provider.terminate(instance_id)
        )

    async def boot_log(self, instance_id: str) -> str:
        """As the provider; empty where it has no such thing."""
        provider = self._provider
        if not isinstance(provider, BootLog):
            return ""

        async def once() -> str:
            return text_of(await provider.boot_log(instance_id))

        return await self._call(Turn.READING, "boot_log", self._limits.list_timeout, once)

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """A drill. Raises `CannotReclaim` where the provider has none."""
        provider = self._provider
        if not isinstance(provider, Reclaimable):
            raise CannotReclaim(f"the provider of pool {self.pool!r} has no preemption drill")
        await self._call(
            Turn.ENDING,
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

    @property
    def paused_for(self) -> float:
        """Seconds for which the provider wants no calls."""
        return self._queue.paused_for

    async def retire(self) -> None:
        """Closes as soon as every call under way has its answer: its successor is in use."""
        await self._at_rest.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of connections; an error here is told and harms nobody."""
        self.trouble.close()
        try:
            await contained(lambda: self._provider.aclose(), self._limits.close_timeout)
        except Exception as error:  # whatever it is, the process is ending
            _log.warning("provider_close_failed", pool=self.pool, error=repr(error))

    def health(self) -> dict[str, Any]:
        """Calls by outcome, last success and last error by operation, what fails now; JSON-able."""
        return {
            **self._record.summary(),
            "failing": self.trouble.summary(),
            "waiting": self._queue.waiting,
            "under_way": self._queue.under_way,
            "paused_for": self._queue.paused_for,
        }

    async def _read(
        self, operation: str, call: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        """Several attempts only after a success: of an outage each round asks once."""
        attempts = 1 if self.trouble.failures(operation) else self._limits.attempts
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._worth_repeating),
            stop=stop_after_attempt(attempts),
            wait=ReadBackOff(self._limits.longest_wait),
            reraise=True,
        )
        limit = self._limits.list_timeout
        try:
            answer: Sequence[T] = await retrying(self._call, Turn.READING, operation, limit, call)
        except ProviderError as error:
            self.trouble.failed(operation, error)
            raise
        failed = self.trouble.failures(operation) > 0
        self.trouble.worked(operation)
        if failed:
            self._is_back()
        return answer

    def _is_back(self) -> None:
        for what, pulse in self.back.items():
            if self.trouble.failures(what):
                pulse.poke()

    async def _change(
        self, turn: Turn, operation: str, limit: float, call: Callable[[], Awaitable[T]]
    ) -> T:
        try:
            answer = await self._call(turn, operation, limit, call)
        except ProviderError as error:
            self._change_failed = isinstance(error, RateLimited | Unavailable)
            raise
        finally:
            self.touched.poke()
        if self._change_failed:
            self._change_failed = False
            self._is_back()
        return answer

    async def _call(
        self, turn: Turn, operation: str, limit: float, call: Callable[[], Awaitable[T]]
    ) -> T:
        self._under_way += 1
        self._at_rest.clear()
        try:
            return await self._counted(turn, operation, limit, call)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._at_rest.set()

    async def _counted(
        self, turn: Turn, operation: str, limit: float, call: Callable[[], Awaitable[T]]
    ) -> T:
        if (left := self._queue.paused_for) > self._limits.longest_wait:
            told = f"pool {self.pool!r}: {operation}: not asked: it wants no calls for {left:.0f} s"
            raise RateLimited(told, left)
        await self._queue.take(turn)
        try:
            answer = await self._translated(turn, operation, limit, call)
        except ProviderError as error:
            self._record.failed(operation, error)
            self._queue.pause(min(wanted_pause(error), self._limits.longest_pause))
            raise
        self._record.worked(operation)
        return answer

    async def _translated(
        self, turn: Turn, operation: str, limit: float, call: Callable[[], Awaitable[T]]
    ) -> T:
        where = f"pool {self.pool!r}: {operation}"
        try:
            return await contained(call, limit, lambda: self._queue.give_back(turn))
        except ProviderError as error:
            error.args = (one_line(error), *error.args[1:])
            raise
        except NotAnswered as late:
            raise Unavailable(f"{where}: no answer within {limit:g} s") from late
        except TimeoutError as late:
            raise Unavailable(f"{where}: timed out: {one_line(late)}") from late
        except Malformed as odd:
            raise Unavailable(f"{where}: that is no answer: {one_line(odd)}") from odd
        except Exception as foreign:
            self.trouble.fault(operation, foreign)
            told = f"{type(foreign).__name__}: {one_line(foreign)}"
            raise Unavailable(f"{where}: {told}") from foreign

    def _worth_repeating(self, error: BaseException) -> bool:
        """A hang has already cost its time, a long pause was asked for: the next round asks."""
        if isinstance(error.__cause__, TimeoutError) or not isinstance(error, Exception):
            return False
        if wanted_pause(error) > self._limits.longest_wait:
            return False
        return isinstance(error, RateLimited | Unavailable)
