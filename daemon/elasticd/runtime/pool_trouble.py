"""What a pool's provider fails at now, since when, and how often: for its pace, status, and log.

The first failure is logged as it comes, its repeats once a minute, and the end with its duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from elasticd.ops.repeats import Repeats
from elasticd.runtime.contained import one_line
from elasticd.runtime.ports import Clock

_log = structlog.get_logger()


@dataclass(slots=True)
class _Failing:
    since: float
    times: int = 0
    error: str = ""
    message: str = ""


class PoolTrouble:
    """By what is failing: `instances`, `offerings`, `notices`."""

    def __init__(self, pool: str, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._failing: dict[str, _Failing] = {}
        self._since = 0.0
        self._times = 0
        self._repeats = Repeats()

    def failures(self, what: str) -> int:
        """In a row."""
        failing = self._failing.get(what)
        return failing.times if failing is not None else 0

    def failed(self, what: str, error: BaseException) -> None:
        """Once more."""
        now = self._clock.now()
        if not self._failing:
            self._since, self._times = now, 0
        failing = self._failing.setdefault(what, _Failing(now))
        failing.times += 1
        failing.error, failing.message = type(error).__name__, one_line(error)
        self._times += 1
        self._repeats.tell(
            "warning",
            "provider_does_not_answer",
            (what, failing.error),
            pool=self._pool,
            what=what,
            error=failing.error,
            message=failing.message,
        )

    def worked(self, what: str) -> None:
        """It answers; the last of what failed is told with how long it lasted."""
        if self._failing.pop(what, None) is None or self._failing:
            return
        self._repeats.close()
        lasted = self._clock.now() - self._since
        _log.info(
            "provider_answers_again", pool=self._pool, after=f"{lasted:.0f} s", failures=self._times
        )

    def fault(self, operation: str, error: BaseException) -> None:
        """The provider's module broke: with the traceback the first time."""
        kind = ("fault", operation, type(error).__name__)
        self._repeats.tell(
            "warning",
            "provider_fault",
            kind,
            pool=self._pool,
            operation=operation,
            error=one_line(error),
            exc_info=error,
        )

    def close(self) -> None:
        """Nothing more will be told."""
        self._repeats.close()

    def summary(self) -> list[dict[str, Any]]:
        """JSON-able; `age` in seconds since it began to fail."""
        now = self._clock.now()
        return [
            {
                "what": what,
                "age": now - failing.since,
                "failures": failing.times,
                "error": failing.error,
                "message": failing.message,
            }
            for what, failing in self._failing.items()
        ]
