"""What the gateway counts for one model, over time.

Concurrency is the highest number of requests queued or in flight within one report. Two sliding
windows remember its extremes: the lowest over `upscale_delay` (what has been wanted *all the
while*) and the highest over `downscale_delay` (what has been needed *at least once*). A gap in the
reports empties both: what was not seen is not known, and unknown never scales down.
"""

from __future__ import annotations

from collections import deque

STALE_AFTER = 10.0
"""Seconds without a report after which a model's demand counts as not known."""

_BUCKETS = 20


class Extremes:
    """Lowest and highest value seen in the last `span` seconds, in about twenty buckets."""

    def __init__(self, span: float) -> None:
        self.span = span
        self._width = max(span / _BUCKETS, 0.25)
        self._buckets: deque[tuple[float, float, float]] = deque()
        self._first: float | None = None

    def add(self, now: float, value: float) -> None:
        """One more value, not older than the last."""
        if self._first is None:
            self._first = now
        if self._buckets and now - self._buckets[-1][0] < self._width:
            start, low, high = self._buckets.pop()
            self._buckets.append((start, min(low, value), max(high, value)))
        else:
            self._buckets.append((now, value, value))
        while self._buckets and self._buckets[0][0] < now - self.span - self._width:
            self._buckets.popleft()

    @property
    def empty(self) -> bool:
        """Whether no value has come yet."""
        return not self._buckets

    def covered(self, now: float) -> bool:
        """Whether values have been coming for the whole span."""
        return self._first is not None and now - self._first >= self.span

    def low(self) -> float:
        """The lowest value in the span; only asked of a window that has values."""
        return min(b[1] for b in self._buckets)

    def high(self) -> float:
        """The highest value in the span; only asked of a window that has values."""
        return max(b[2] for b in self._buckets)


class Demand:
    """Queue and flight of one model as last reported, and their windows."""

    def __init__(self, upscale_delay: float, downscale_delay: float) -> None:
        self.queued = 0
        self.in_flight = 0
        self.concurrency = 0
        self.sampled_at: float | None = None
        self.active_at: float | None = None
        self._delays = (upscale_delay, downscale_delay)
        self._clear()

    def _clear(self) -> None:
        self.rising = Extremes(self._delays[0])
        self.falling = Extremes(self._delays[1])

    def retime(self, upscale_delay: float, downscale_delay: float) -> None:
        """Takes over changed delays; the windows start anew only if they did change."""
        if self._delays != (upscale_delay, downscale_delay):
            self._delays = (upscale_delay, downscale_delay)
            self._clear()

    def sample(self, now: float, queued: int, in_flight: int, peak: int, arrivals: int) -> None:
        """One report of the gateway."""
        if self.sampled_at is not None and now - self.sampled_at > STALE_AFTER:
            self._clear()
        self.queued, self.in_flight, self.sampled_at = queued, in_flight, now
        self.concurrency = max(peak, queued + in_flight)
        if self.concurrency or arrivals or self.active_at is None:
            self.active_at = now  # at the first report too: idleness before it is not known
        self.rising.add(now, self.concurrency)
        self.falling.add(now, self.concurrency)

    def known(self, now: float) -> bool:
        """Whether a recent report is there."""
        if self.sampled_at is None or self.rising.empty:
            return False
        return now - self.sampled_at <= STALE_AFTER
