"""Runs a provider's code so that nothing it does gets out of its pool.

It may raise anything, `SystemExit` too, be cancelled by its own hand, or go on when it is told to
stop. Only one thing it can do to others: block the loop for as long as it does not await.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _unregister_task
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 1.0
"""Seconds that a cancelled call gets to clean up. After them it is left to itself."""

_LEFT_ALONE: set[asyncio.Task[Any]] = set()

_LONGEST = 300
"""Characters of a foreign message that are kept."""


class NotAnswered(TimeoutError):
    """The call took longer than it may."""


class BrokeOut(Exception):
    """The code raised what would end a process, or was cancelled by its own hand."""


async def contained(
    call: Callable[[], Awaitable[T]],
    limit: float | None,
    on_end: Callable[[], None] = lambda: None,
) -> T:
    """What the call returns or raises, always an `Exception`; `NotAnswered` after `limit` seconds.

    `on_end` is called when it has really ended, which may be much later.
    """
    task = asyncio.create_task(_caught(call))
    task.add_done_callback(lambda ended: _forget(ended, on_end))
    try:
        await asyncio.wait({task}, timeout=limit)
        if task.done():
            return task.result()
        raise NotAnswered
    finally:
        if not task.done():
            await _give_up(task)


async def _give_up(task: asyncio.Task[T]) -> None:
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=GRACE)
    finally:
        if not task.done():
            # Held, so that it is not collected in the middle; and off the loop's list, for at its
            # end a loop waits for all that are on it, and this one may never end.
            _LEFT_ALONE.add(task)
            task.add_done_callback(_LEFT_ALONE.discard)
            _unregister_task(task)


async def _caught(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokeOut("it cancelled itself") from cancelled
    except (Exception, GeneratorExit):
        raise
    except BaseException as fatal:
        raise BrokeOut(f"it raised {fatal!r}") from fatal


def _forget(task: asyncio.Task[T], on_end: Callable[[], None]) -> None:
    """Whoever waited has the outcome; of one that was given up nobody wants to know it."""
    if not task.cancelled():
        task.exception()
    on_end()


def one_line(error: BaseException | str) -> str:
    """What it says, on one line that is not too long; a page of HTML is no message."""
    try:
        text = str(error) or repr(error)
    except Exception:  # a message that cannot even be made
        text = ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:5000]).split())
    text = text or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
