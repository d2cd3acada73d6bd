"""Waiting for a condition with a deadline, for tests that watch real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, deadline: float = 20.0) -> T:
    """The first true answer of `condition`; fails with `what` after `deadline` seconds."""
    end, pause = time.monotonic() + deadline, threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        pause.wait(0.02)
