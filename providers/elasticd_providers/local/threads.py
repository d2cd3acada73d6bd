"""A few threads of this provider's own for what blocks.

Not the event loop's default executor: that one is shared, so a disk or a file lock that hangs here
would starve every other provider. And the threads are daemons: one that hangs for ever must not
hold up the end of the process either.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from elasticd.provider import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

_Work = tuple["Future[Any]", Callable[[], Any]]


class Closed(Unavailable):
    """The provider was closed; what was still waiting did not begin."""

    def __init__(self) -> None:
        super().__init__("local: the provider is closed; ask one that is open")


class Threads:
    """Runs calls in at most `size` threads, which begin when they are first needed.

    A call that is cancelled while it waits for a thread never runs; one that runs is finished.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` returns or raises; `Closed` after `close`."""
        if self._closed:
            raise Closed
        future: Future[T] = Future()
        self._waiting.put((future, partial(call, *args, **kwargs)))
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Lets go of the threads; waits for none. What has begun is finished and answered."""
        self._closed = True
        while True:
            try:
                work = self._waiting.get_nowait()
            except queue.Empty:
                break
            if work is not None and work[0].set_running_or_notify_cancel():
                work[0].set_exception(Closed())
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            _carry_out(*work)
            del work  # an idle thread keeps no answer alive


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = call()
    except BaseException as raised:
        future.set_exception(raised)
    else:
        future.set_result(answer)
