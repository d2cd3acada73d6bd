"""An engine starts only when the machine has memory for it: loads at once would kill each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.node.host_memory import Host, Memory

POLL = 1.0


class NotEnoughMemory(Exception):
    """There was not enough until the deadline; the message says how much there was."""


@dataclass(frozen=True, slots=True)
class MemoryGate:
    """`clock` and `pause` (which returns true when the wait is to end) are a test's to replace."""

    memory: Callable[[], Memory | None] = field(default_factory=lambda: Host().memory)
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[threading.Event, float], bool] = threading.Event.wait

    def wait(
        self,
        weights: int | None,
        deadline: float,
        say: Callable[[str], None],
        stopping: threading.Event,
    ) -> bool:
        """Waits for enough memory, saying what for; false if asked to stop meanwhile.

        Raises `NotEnoughMemory`.
        """
        while True:
            now = self.memory()
            shortage = now.shortage(weights) if now is not None else ""
            if not shortage:
                return not stopping.is_set()
            if self.clock() >= deadline:
                raise NotEnoughMemory(
                    f"not enough host memory to load until the start timeout: {shortage}; run "
                    f"fewer replicas on this machine, or a smaller model"
                )
            say(f"waiting for host memory ({shortage})")
            if self.pause(stopping, POLL):
                return False
