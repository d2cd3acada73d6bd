"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: the time it should wait is added to the loop's clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing is scheduled: the test would hang for ever")
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code that waits for time and events only, not for sockets or threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test in virtual time, which begins at 0."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class LoopClock:
    """A controller's clock that shows the running loop's time, plus a start."""

    def __init__(self, start: float = 1000.0) -> None:
        self._start = start

    def now(self) -> float:
        return self._start + asyncio.get_running_loop().time()


async def settle() -> None:
    """Lets everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)
