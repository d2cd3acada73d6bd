"""How often and how long a provider may be asked."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from tenacity import RetryCallState, wait_random_exponential

from elasticd.provider import RateLimited


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one pool. Times in seconds.

    `rate` calls a second on average, `burst` at once. `attempts` is for listings only: a launch
    or a terminate that was not answered is the core's to repeat. A provider that asks to wait
    longer than `longest_wait` is not waited for within a call.
    """

    launch_timeout: float = 300.0
    terminate_timeout: float = 60.0
    list_timeout: float = 30.0
    rate: float = 5.0
    burst: int = 10
    attempts: int = 3
    longest_wait: float = 10.0


class TokenBucket:
    """Spaces calls out. Callers are served in the order in which they came."""

    def __init__(self, rate: float, burst: int) -> None:
        self._interval = 1.0 / rate
        self._slack = (burst - 1) * self._interval
        self._next_free = -math.inf

    async def take(self) -> None:
        """Returns when a call may be made. A place given up while waiting is not used again."""
        now = asyncio.get_running_loop().time()
        due = max(self._next_free, now - self._slack)
        self._next_free = due + self._interval
        if due > now:
            await asyncio.sleep(due - now)

    def pause(self, seconds: float) -> None:
        """Nobody is served for so long: the provider said so."""
        now = asyncio.get_running_loop().time()
        self._next_free = max(self._next_free, now + seconds)


@dataclass(slots=True)
class ReadBackOff:
    """Seconds between two attempts of a listing: what the provider asks for, else growing."""

    longest: float
    _growing: wait_random_exponential = field(
        default_factory=lambda: wait_random_exponential(multiplier=0.5, max=5.0)
    )

    def __call__(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, RateLimited) and error.after is not None:
            return min(error.after, self.longest)
        return float(self._growing(state))
