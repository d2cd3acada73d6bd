"""An event loop whose clock jumps, and whose threads are calls: all of it happens in one order.

A controller that dies leaves its loop behind, with everything that was going on in it; the next
life begins on a new loop at the time at which the old one stopped.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Never waits and never looks: nobody here has a socket."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled: it would hang for ever")
        self.now += max(0.0, timeout)
        return []


class ModelLoop(asyncio.SelectorEventLoop):
    """Begins at `start` seconds. After `cut` nothing that it still does can reach a disk.

    `faults`: what nobody had caught.
    """

    def __init__(self, start: float) -> None:
        self._jumping = _JumpingSelector()
        self._jumping.now = start
        self.cut = False
        self.faults: list[str] = []
        super().__init__(self._jumping)
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """In one of the loop's next rounds, so that a death may come before it and after it."""
        done: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if self.cut or done.done():
                return
            try:
                done.set_result(func(*args))
            except BaseException as raised:
                done.set_exception(raised)

        self.call_soon(run)
        return done

    def run_for(self, seconds: float) -> None:
        """Lets so much time pass, or less if somebody stops the loop."""
        end = self.call_later(seconds, self.stop)
        self.run_forever()
        end.cancel()

    def run_rounds(self, count: int) -> None:
        """So many rounds in which no time passes: then everything stands in the middle of
        whatever it does."""
        for _ in range(count):
            self.call_soon(self.stop)
            self.run_forever()

    def bury(self) -> None:
        """Frees what the dead life still held. Its links must be cut before."""
        self.cut = True
        for _ in range(20):
            left = asyncio.all_tasks(self)
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=5.0))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()


class Timers:
    """What will happen in the world at its time, whoever lives then."""

    def __init__(self, loop: ModelLoop) -> None:
        self._loop = loop
        self._number = 0
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}

    @property
    def loop(self) -> ModelLoop:
        """The one that runs now."""
        return self._loop

    @property
    def now(self) -> float:
        """Seconds."""
        return self._loop.time()

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Calls it in so many seconds."""
        self._number += 1
        self._waiting[self._number] = (self.now + seconds, then)
        self._schedule(self._number)

    def move(self) -> None:
        """To a new loop, at the time at which the old one stands."""
        self._loop = ModelLoop(self.now)
        for number in self._waiting:
            self._schedule(number)

    def _schedule(self, number: int) -> None:
        when, _ = self._waiting[number]
        self._loop.call_at(when, self._ring, self._loop, number)

    def _ring(self, loop: ModelLoop, number: int) -> None:
        if loop is self._loop:
            self._waiting.pop(number)[1]()
