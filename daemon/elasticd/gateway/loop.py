"""What runs the data path: uvloop, which moves bytes in C, where there is one; and rare garbage."""

from __future__ import annotations

import asyncio
import gc

_YOUNG = 20_000
"""Objects made before somebody looks for cycles among them: a request makes hundreds and leaves
none."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop: uvloop's on Linux, asyncio's own elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def calm_garbage_collection() -> None:
    """What is loaded by now stays for good and is never looked at again: a look at all of it stops
    every stream for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
