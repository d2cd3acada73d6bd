"""SIGTERM and SIGINT ask a process to stop; the second one asks it to hurry."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Set by signals, never cleared. `hurry`: what is under way need not be waited for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self._hears = False

    @contextlib.contextmanager
    def life(self) -> Iterator[None]:
        """When the block ends the signals mean again what they meant before `listen`."""
        try:
            yield
        finally:
            if self._hears:
                for number in _NUMBERS:
                    asyncio.get_running_loop().remove_signal_handler(number)

    def listen(self) -> None:
        """From now on, until the `life` ends: whoever finds the state directory in use never
        listened, and leaves the signals to those they are meant for."""
        if not self._hears:
            self._hears = True
            for number in _NUMBERS:
                asyncio.get_running_loop().add_signal_handler(number, self._hear)

    def _hear(self) -> None:
        (self.hurry if self.asked.is_set() else self.asked).set()
