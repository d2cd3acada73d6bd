"""One log line for many of a kind: what can happen thousands of times a second fills no disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

_log = structlog.get_logger("elasticd")

PERIOD = 60.0
"""Seconds between two lines of one kind."""

_NO_ROOM = "socket.accept() out of system resource"
"""How asyncio's own listeners tell it: per place in the backlog, each with a traceback."""


class Folded:
    """The first of a kind is logged at once; those of the next minute in one line at its end."""

    def __init__(self, event: str, **fields: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = event
        self._fields = fields
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0

    def note(self, **fields: Any) -> None:
        """One more. The newest fields are those that are told."""
        self._count += 1
        self._fields.update(fields)
        if self._timer is None:
            self._tell(0.0)

    def close(self) -> None:
        """Tells what has not been told."""
        if self._timer is not None:
            since = PERIOD - (self._timer.when() - self._loop.time())
            self._timer.cancel()
            if self._count:
                self._log(since)

    def _tell(self, seconds: float) -> None:
        self._timer = None
        if self._count:
            self._log(seconds)
            self._timer = self._loop.call_later(PERIOD, self._tell, PERIOD)

    def _log(self, seconds: float) -> None:
        count, self._count = self._count, 0
        _log.warning(self._event, count=count, since=f"{seconds:.0f} s", **self._fields)


def fold_accepts(loop: asyncio.AbstractEventLoop) -> None:
    """Folds what asyncio's own listeners say when no connection can be accepted; the rest is told
    as ever. To be called on the running loop."""
    folded = Folded("no descriptors left to accept connections")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") == _NO_ROOM:
            folded.note(error=str(context.get("exception")))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """`asyncio.run` for a long-running process. `new_loop`: makes a loop of another kind."""

    async def folding() -> T:
        fold_accepts(asyncio.get_running_loop())
        return await main()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(folding())
