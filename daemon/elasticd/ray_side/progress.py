"""Whether an engine gets on with its work, from its own counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Requests running and waiting, tokens generated so far; `None`: the engine does not tell.

    `prompt` and `cache` show a prompt being read: tokens of prompts done, and the share of the KV
    cache in use, which grows with each part of a long one.
    """

    running: int | None = None
    waiting: int | None = None
    generated: int | None = None
    prompt: int | None = None
    cache: float | None = None


def read_counters(metrics: str) -> Counters:
    """From Prometheus text; values of one name are added over their labels."""
    lines = metrics.splitlines()
    return Counters(
        running=_count(lines, "vllm:num_requests_running"),
        waiting=_count(lines, "vllm:num_requests_waiting"),
        generated=_count(lines, "vllm:generation_tokens_total"),
        prompt=_count(lines, "vllm:prompt_tokens_total"),
        cache=_sum(lines, "vllm:kv_cache_usage_perc"),
    )


def _count(lines: Iterable[str], name: str) -> int | None:
    value = _sum(lines, name)
    # Not a number is not known; it is never zero.
    return int(value) if value is not None and abs(value) < float("inf") else None


def _sum(lines: Iterable[str], name: str) -> float | None:
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith((f"{name}{{", f"{name} "))
    ]
    return sum(values) if values else None


class Progress:
    """How long requests have stood still. One owner, times in seconds.

    Anything that moves counts: a token, a prompt read to its end, a part of one in the cache.
    """

    def __init__(self) -> None:
        self._work: tuple[int | float | None, ...] = ()
        self._since: float | None = None

    def observe(self, now: float, counters: Counters | None) -> float | None:
        """Seconds in which requests were there and nothing moved; `None`: idle, or not known.

        `None` for the counters: the engine did not tell them this time. That ends no standstill.
        """
        if counters is None:
            return self._standstill(now)
        work = (counters.generated, counters.prompt, counters.cache)
        if counters.generated is None or not (counters.running or counters.waiting):
            self._since = None
        elif work != self._work or self._since is None:
            self._since = now
        self._work = work
        return self._standstill(now)

    def _standstill(self, now: float) -> float | None:
        return None if self._since is None else now - self._since
