"""How often and how long a provider may be asked."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tenacity import RetryCallState, wait_random_exponential

from elasticd.provider import RateLimited

CALM = 3
"""Failures in a row from which on lists are asked for less and less often."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one pool. Times in seconds.

    `rate` calls a second on average, `burst` at once, `at_once` of a kind under way. `attempts` is
    for listings only: a launch or a terminate that was not answered is the core's to repeat. A
    provider that asks to wait longer than `longest_wait` is not waited for within a call: until
    then, but `longest_pause` at most, whatever is asked of it is answered with that.
    """

    launch_timeout: float = 300.0
    terminate_timeout: float = 60.0
    list_timeout: float = 30.0
    close_timeout: float = 5.0
    rate: float = 5.0
    burst: int = 10
    at_once: int = 32
    attempts: int = 3
    longest_wait: float = 10.0
    longest_pause: float = 300.0


def wanted_pause(error: Exception) -> float:
    """Seconds for which the provider wants no calls; 0 where it does not say, or says nonsense."""
    after = error.after if isinstance(error, RateLimited) else None
    numeric = isinstance(after, int | float) and math.isfinite(after)
    return max(0.0, float(after)) if after is not None and numeric else 0.0


@dataclass(frozen=True, slots=True)
class ListingPace:
    """Seconds between two lists: `period`; longer and longer after failures, up to `longest`.

    With jitter, so that what failed together does not come back together.
    """

    period: float
    longest: float = 300.0
    jitter: Callable[[], float] = random.random

    def pause(self, failures: int) -> float:
        """The rest after that many failures in a row."""
        if failures < CALM:
            return self.period
        grown = self.period * 2.0 ** min(failures - CALM + 1, 30)
        return max(self.period, min(self.longest, grown) * (1.0 - 0.5 * self.jitter()))


@dataclass(slots=True)
class ReadBackOff:
    """Seconds between two attempts of a listing: what the provider asks for, else growing."""

    longest: float
    _growing: wait_random_exponential = field(
        default_factory=lambda: wait_random_exponential(multiplier=0.5, max=5.0)
    )

    def __call__(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        wanted = wanted_pause(error) if isinstance(error, Exception) else 0.0
        return min(wanted, self.longest) if wanted else float(self._growing(state))
