"""Cancelling a call at its n-th await, as a time limit or the end of the process may."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def cancelled_at(number: int, call: Coroutine[Any, Any, T]) -> bool:
    """Runs `call` and cancels it while it waits for the `number`-th time.

    False: it ended before it came to that, and so has no more awaits to be cancelled at.
    """
    interrupted = _Interrupted(call, number)
    task = asyncio.ensure_future(_await(interrupted))
    await asyncio.wait([task])
    if not interrupted.reached:
        task.result()
        return False
    return True


async def _await(interrupted: _Interrupted) -> Any:
    return await interrupted


class _Interrupted:
    """Passes on what the call waits for, and counts."""

    def __init__(self, call: Coroutine[Any, Any, Any], number: int) -> None:
        self._call = call
        self._number = number
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = 0
        step = self._call.send
        value: Any = None
        while True:
            try:
                waits_for = step(value)
            except StopIteration as done:
                return done.value
            awaited += 1
            if awaited == self._number:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                # Once this task waits for it: that is the moment meant.
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                value, step = (yield waits_for), self._call.send
            except BaseException as thrown:
                value, step = thrown, self._call.throw
