"""Blocking calls with a time limit, off the loop.

What is called may hang for ever and cannot be cancelled: Ray while its head is away, a file on a
host that does not answer. So each call runs in a daemon thread of its own: given up, it neither
holds up a pool of threads nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], timeout: float, name: str) -> T:
    """What `call` returns or raises; `TimeoutError` after `timeout` seconds, then it runs on."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    async with asyncio.timeout(timeout):
        return await answer
