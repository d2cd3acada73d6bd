"""`elasticd status --watch` in a terminal, and followers that outlive a restart of the daemon."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cli.real_admin import Controller, environment, serving, started
from tests.cli.samples import sample_status


@contextmanager
def in_terminal(*argv: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program in a terminal of its own, of 80 columns and 12 lines."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticd.cli", *map(str, argv)],
        stdin=subprocess.DEVNULL,
        stdout=its,
        env=environment(COLUMNS="80", LINES="12", TERM="xterm"),
    )
    os.close(its)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, wanted: str, deadline: float = 20.0) -> str:
    """What the terminal is sent until `wanted` is in it."""
    seen, end = "", time.monotonic() + deadline
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"not within {deadline:g} s: {wanted!r}; seen: {seen[-500:]!r}"
        seen += os.read(terminal, 65536).decode()
    return seen


def test_a_terminal_is_redrawn_in_place_and_given_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with (
        serving(Controller(sample_status()), path) as controller,
        in_terminal("status", "--watch", "--socket", path) as (process, terminal),
    ):
        assert "\x1b[?25l" in read_until(terminal, "more lines")  # cursor hidden, cut to 12 lines
        controller.told = {**controller.told, "cluster": "elsewhere"}
        assert "\x1b[H" in read_until(terminal, "elsewhere")
        process.send_signal(signal.SIGINT)
        read_until(terminal, "\x1b[?25h")
        assert process.wait(20.0) == 0


def test_a_terminal_marks_what_it_shows_as_old_while_the_daemon_is_away(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with ExitStack() as terminals:
        with serving(Controller(sample_status()), path):
            program = in_terminal("status", "--watch", "--socket", path)
            process, terminal = terminals.enter_context(program)
            read_until(terminal, "healthy")
            process.send_signal(signal.SIGSTOP)  # it does not ask just while the daemon stops
        process.send_signal(signal.SIGCONT)
        read_until(terminal, "OLD, and asking again")
        process.send_signal(signal.SIGINT)
        assert process.wait(20.0) == 3


def test_a_follower_of_events_goes_on_after_a_restart_of_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    controller = Controller(sample_status())
    with serving(controller, path):
        controller.write(time.time(), (), [("node:n", "before")])
        process = started("events", "--follow", "--socket", path)
        assert process.stdout is not None
        assert process.stderr is not None
        assert "before" in process.stdout.readline()
        assert all(controller.looked.acquire(timeout=20.0) for _ in range(2))  # it waits now
    try:
        assert "asking again" in process.stderr.readline()
        controller.write(time.time(), (), [("node:n", "after")])
        with serving(controller, path):
            assert "after" in process.stdout.readline()
            assert "the daemon is back" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20.0)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
