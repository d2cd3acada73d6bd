"""What blocks does so in a few threads of the provider's own, and takes nobody with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from elasticd.provider import Unavailable
from elasticd_providers.local.threads import Closed, Threads

_LIMIT = 20.0


class Stuck:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self._let_go = threading.Event()
        self.threads: set[str] = set()

    def __call__(self) -> str:
        self.threads.add(threading.current_thread().name)
        self.began.release()
        assert self._let_go.wait(_LIMIT)
        return "done"

    def let_go(self) -> None:
        self._let_go.set()


async def _begun(stuck: Stuck) -> None:
    assert await asyncio.to_thread(stuck.began.acquire, timeout=_LIMIT)


async def test_hung_calls_take_no_more_threads_than_allowed_and_the_rest_waits_its_turn() -> None:
    threads, stuck = Threads(2, "test"), Stuck()
    hung = [asyncio.ensure_future(threads.run(stuck)) for _ in range(5)]
    await _begun(stuck)
    await _begun(stuck)
    assert not stuck.began.acquire(blocking=False)
    assert sum(t.name == "test" for t in threading.enumerate()) == 2
    stuck.let_go()
    assert await asyncio.gather(*hung) == ["done"] * 5
    threads.close()


async def test_hung_calls_leave_the_event_loops_own_executor_alone() -> None:
    threads, stuck = Threads(4, "test"), Stuck()
    hung = [asyncio.ensure_future(threads.run(stuck)) for _ in range(100)]
    await _begun(stuck)
    assert await asyncio.to_thread(lambda: "answered") == "answered"
    stuck.let_go()
    await asyncio.gather(*hung)
    threads.close()


async def test_a_call_given_up_while_it_waits_for_a_thread_never_runs() -> None:
    threads, stuck, ran = Threads(1, "test"), Stuck(), threading.Event()
    hung = asyncio.ensure_future(threads.run(stuck))
    await _begun(stuck)
    given_up = asyncio.ensure_future(threads.run(ran.set))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    stuck.let_go()
    assert await hung == "done"
    await threads.run(lambda: None)  # all that stood before it has had its turn
    assert not ran.is_set()
    threads.close()


async def test_closing_answers_what_waits_and_finishes_what_has_begun() -> None:
    threads, stuck = Threads(1, "test"), Stuck()
    begun = asyncio.ensure_future(threads.run(stuck))
    await _begun(stuck)
    waiting = asyncio.ensure_future(threads.run(stuck))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(Closed, match="closed"):
        await waiting
    with pytest.raises(Unavailable):
        await threads.run(stuck)
    stuck.let_go()
    assert await begun == "done"


async def test_an_error_of_the_call_reaches_its_caller_and_the_thread_goes_on() -> None:
    threads = Threads(1, "test")
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)
    assert await threads.run(str.upper, "on") == "ON"
    threads.close()


_HANGS_FOR_EVER = """
import asyncio, threading
from elasticd_providers.local.threads import Threads

async def main():
    threads, began = Threads(1, "hangs"), threading.Event()
    call = asyncio.ensure_future(threads.run(lambda: began.set() or threading.Event().wait()))
    while not began.is_set():
        await asyncio.sleep(0.001)
    call.cancel()
    threads.close()

asyncio.run(main())
print("ended")
"""


def test_a_call_that_hangs_for_ever_does_not_hold_up_the_end_of_the_process() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _HANGS_FOR_EVER],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout == "ended\n"
