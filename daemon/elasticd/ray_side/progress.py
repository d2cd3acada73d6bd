"""Whether an engine gets on with its work, from its own counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Requests running and waiting, tokens generated so far; `None`: the engine does not tell."""

    running: int | None = None
    waiting: int | None = None
    generated: int | None = None


def read_counters(metrics: str) -> Counters:
    """From Prometheus text; values of one name are added over their labels."""
    lines = metrics.splitlines()
    return Counters(
        running=_sum(lines, "vllm:num_requests_running"),
        waiting=_sum(lines, "vllm:num_requests_waiting"),
        generated=_sum(lines, "vllm:generation_tokens_total"),
    )


def _sum(lines: Iterable[str], name: str) -> int | None:
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith((f"{name}{{", f"{name} "))
    ]
    return int(sum(values)) if values else None


class Progress:
    """How long requests have run without a token. One owner, times in seconds."""

    def __init__(self) -> None:
        self._generated: int | None = None
        self._since: float | None = None

    def observe(self, now: float, counters: Counters) -> float | None:
        """Seconds without a token while requests run; `None`: idle, or not known."""
        if counters.generated is None or not counters.running:
            self._since = None
        elif counters.generated != self._generated or self._since is None:
            self._since = now
        self._generated = counters.generated
        return None if self._since is None else now - self._since
