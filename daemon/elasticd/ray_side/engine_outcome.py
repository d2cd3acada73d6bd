"""Why an engine is over, in one sentence."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticd.node.host_memory import Host
from elasticd.ray_side.engine_last_words import telling_line


@dataclass(frozen=True, slots=True)
class MemoryKiller:
    """Remembers how often the kernel's memory killer had struck when the engine was started."""

    host: Host = field(default_factory=Host)
    before: int | None = None

    @classmethod
    def watching(cls, host: Host | None = None) -> MemoryKiller:
        host = host or Host()
        return cls(host, host.memory_kills())

    def verdict(self, code: int) -> str:
        """What memory has to do with an end with `code`; empty: nothing that can be seen."""
        now = self.host.memory_kills()
        if self.before is not None and now is not None and now > self.before:
            return f"the kernel ended it for want of host memory ({self.host.memory()})"
        memory = self.host.memory()
        if code == -signal.SIGKILL and memory is not None and memory.shortage(None):
            return f"killed, probably for want of host memory ({memory})"
        return ""


def cause_of_end(code: int | None, tail: Sequence[str], killer: MemoryKiller) -> str:
    """For an engine that nobody had asked to end. `code` `None`: its supervisor was killed.

    Who is killed has not said why: what it printed last is told as that, and not as the reason.
    """
    verdict = "" if code is None else killer.verdict(code)
    told = telling_line(tail)
    if code is None:
        return f"the engine's supervisor was killed; it had printed last: {told}"
    if code in _KILLS:
        how = f"{signal.Signals(-code).name}{f': {verdict}' if verdict else ''}"
        return f"the engine was killed ({how}); it had printed last: {told}"
    how = f"exit {code}{f': {verdict}' if verdict else ''}"
    return f"the engine ended by itself ({how}): {told}"


_KILLS = frozenset({-signal.SIGKILL, -signal.SIGTERM})
"""Exit codes of what somebody else has ended."""
