"""How long a request may wait for its first byte, judged by what its replica does meanwhile.

Silence alone proves nothing: a huge prompt, a long unstreamed answer and a full engine queue are
all silent. So the clock of one request is set back by every byte its replica sends to anybody;
only a replica that tells nobody anything runs it down. A request that is passed over for several
such periods while others are served is given up as well: nothing waits for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

PASSED_OVER = 3
"""Periods after which a request is given up although its replica serves others."""

_LOOKS = 20
"""One timer looks after all requests, so many times a period at most: it costs each next to
nothing."""

_PACE_KEPT = 30.0
"""Seconds that a long gap is remembered at least."""


class Stalled(Exception):
    """Nothing came for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no byte of an answer for {seconds:.0f} s")
        self.seconds = seconds


@dataclass(slots=True, weakref_slot=True)
class Pulse:
    """One replica. Times are the loop's, in seconds; what is kept per token is kept by who reads
    the stream, and costs next to nothing.

    `heard`: when it last sent a byte to anybody. `longest`: the longest gap within one of its
    streams lately. `streams`: how many get their tokens now. `asked`: when each request without a
    byte of its answer was sent, and how many bytes it has.
    """

    heard: float = 0.0
    longest: float = 0.0
    streams: int = 0
    asked: dict[object, tuple[float, int]] = field(default_factory=dict)
    _earlier: float = 0.0
    _since: float = 0.0

    def pace(self, now: float) -> float:
        """The longest usual gap: of the last one to two periods in which there were any. Zero:
        none was ever seen."""
        if self.longest and now - self._since > _PACE_KEPT:
            self._earlier, self.longest, self._since = self.longest, 0.0, now
        return max(self.longest, self._earlier)


class Wait:
    """One request's wait: a block that ends with `Stalled` when the replica is silent too long."""

    __slots__ = ("_cancelling", "_stalls", "_task", "began", "period", "pulse", "stalled_for")

    def __init__(self, stalls: Stalls, pulse: Pulse, period: float) -> None:
        self._stalls = stalls
        self.pulse = pulse
        self.period = period
        self.stalled_for: float | None = None

    @property
    def due(self) -> float:
        """When the wait is over, if nothing is heard any more."""
        silent = max(self.began, self.pulse.heard) + self.period
        return min(silent, self.began + PASSED_OVER * self.period)

    def give_up(self, now: float) -> None:
        """Ends the block from outside."""
        self.stalled_for = now - self.began
        self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task(self._stalls.loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self.began = self._stalls.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stalls.discard(self)
        if self.stalled_for is None:
            return
        # As `asyncio.timeout` does it: only our own cancelling is turned into an exception.
        others = self._task.uncancel() > self._cancelling
        if kind is asyncio.CancelledError and not others:
            raise Stalled(self.stalled_for) from error


class Stalls:
    """All waits of the gateway and the one timer that looks after them. `loop`: where they wait."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waits: set[Wait] = set()
        self._timer: asyncio.TimerHandle | None = None

    def first_byte_within(self, period: float, pulse: Pulse) -> Wait:
        """To be entered by the task that waits."""
        return Wait(self, pulse, period)

    def add(self, wait: Wait) -> float:
        """A wait begins; returns when."""
        now = self.loop.time()
        self._waits.add(wait)
        if self._timer is None:
            self._timer = self.loop.call_later(wait.period, self._look)
        elif self._timer.when() > now + wait.period:  # a period that was made shorter meanwhile
            self._timer.cancel()
            self._timer = self.loop.call_later(wait.period, self._look)
        return now

    def discard(self, wait: Wait) -> None:
        """A wait is over."""
        self._waits.discard(wait)

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self.loop.time()
        self._timer = None
        for wait in [wait for wait in self._waits if wait.due <= now]:
            self._waits.discard(wait)
            wait.give_up(now)
        if self._waits:
            next_due = min(wait.due for wait in self._waits)
            period = min(wait.period for wait in self._waits)
            pause = max(next_due - now, period / _LOOKS)
            self._timer = self.loop.call_later(pause, self._look)
