"""SIGHUP ends nothing of ours, at no moment, and none is lost."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys

from elasticd.ops.hangup import Hangups, takes_hangup

ASK = "from elasticd.ops.hangup import has_terminal; print(has_terminal())"


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


async def test_one_that_came_before_is_told_once_the_listener_is_there() -> None:
    hangups, heard = Hangups(), asyncio.Event()
    hang_up()
    hang_up()
    calls: list[int] = []
    with hangups.heard_by(lambda: (calls.append(1), heard.set())):
        await asyncio.wait_for(heard.wait(), 20)
    assert calls == [1]


async def test_each_one_is_told_while_someone_listens() -> None:
    hangups, heard = Hangups(), asyncio.Queue[int]()
    with hangups.heard_by(lambda: heard.put_nowait(1)):
        for _ in range(3):
            hang_up()
            await asyncio.wait_for(heard.get(), 20)
    assert heard.empty()


async def test_after_the_listener_it_is_harmless() -> None:
    hangups = Hangups()
    with hangups.heard_by(lambda: None):
        pass
    hang_up()
    assert takes_hangup(os.getpid())


def test_a_process_that_would_be_ended_by_it_is_told_apart() -> None:
    plain = subprocess.Popen(
        ["sleep", "600"], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
    )
    deaf = subprocess.Popen(
        ["sleep", "600"], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    try:
        assert not takes_hangup(plain.pid)
        assert takes_hangup(deaf.pid)
    finally:
        for process in (plain, deaf):
            process.kill()
            process.wait()
    assert not takes_hangup(plain.pid)


def test_whether_someone_sits_in_front_of_a_terminal_is_known() -> None:
    alone = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, start_new_session=True
    )
    assert alone.stdout.strip() == "False"
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK])
    with os.fdopen(descriptor, "rb") as terminal:
        assert terminal.readline().strip() == b"True"
    os.waitpid(pid, 0)
