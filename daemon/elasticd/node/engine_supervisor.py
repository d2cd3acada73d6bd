"""Stands between a replica's actor and its engine: nothing of the engine outlives either.

    python -m elasticd.node.engine_supervisor NODE_ID -- ENGINE ARGV…

Standard library only. It leaves the actor's process tree and session, so that whoever kills the
actor's children does not kill it first, and starts the engine as a process group below itself.
Standard input is the actor's hand: the line `stop SECONDS` ends the engine gently within that
time, and its end (the actor died, however) ends the engine at once. Standard output tells, one
JSON object a line: `{"line": …}` what the engine prints, `{"exit": N}` that the engine and every
descendant of it is gone. The environment is handed on; the engine's key is in there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from elasticd.node import process_tree

MARKER = "ELASTICD_ENGINE"
# With this length an event is below PIPE_BUF whatever its characters: written whole or not at all.
LINE_LIMIT = 600
_CHUNK = 65536


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until the engine is gone; returns the engine's exit code as a shell would show it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) < 3 or arguments[1] != "--":
        print("usage: engine_supervisor NODE_ID -- ENGINE ARGV…", file=sys.stderr)
        return 2
    if os.fork():
        os._exit(0)
    os.setsid()
    process_tree.become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return _Supervisor(arguments[0], arguments[2:]).run()


def sweep_orphans(node_id: str) -> int:
    """Ends engines of `node_id` whose supervisor is dead; how many processes there were."""

    def is_orphan(value: str) -> bool:
        owner, pid, started = value.rsplit(":", 2)
        return owner == node_id and str(process_tree.start_time(int(pid))) != started

    return process_tree.sweep(MARKER, is_orphan)


class _Supervisor:
    """One engine, from start to the last descendant's end."""

    def __init__(self, node_id: str, argv: Sequence[str]) -> None:
        self._node_id = node_id
        self._argv = argv
        self._selector = selectors.DefaultSelector()
        self._orders = b""
        self._output = b""
        self._kill_at: float | None = None
        self._engine: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        self._listen_to_signals()
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
        self._selector.register(0, selectors.EVENT_READ, self._read_orders)
        try:
            self._engine = self._start()
        except OSError as problem:
            self._tell(line=f"the engine cannot be started: {problem}")
            self._tell_exit(127)
            return 127
        assert self._engine.stdout is not None
        output = self._engine.stdout.fileno()
        os.set_blocking(output, False)
        self._selector.register(output, selectors.EVENT_READ, self._read_output)
        while self._engine.poll() is None:
            self._turn()
        process_tree.end_descendants()
        while self._read_output():
            pass
        code = self._engine.returncode
        self._tell_exit(code)
        return code if code >= 0 else 128 - code

    def _start(self) -> subprocess.Popen[bytes]:
        me = os.getpid()
        marker = f"{self._node_id}:{me}:{process_tree.start_time(me)}"
        return subprocess.Popen(
            list(self._argv),
            env={**os.environ, MARKER: marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=process_tree.die_with_parent(),
        )

    def _listen_to_signals(self) -> None:
        """SIGCHLD wakes the loop; SIGTERM ends everything at once."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, _CHUNK))

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self._kill_at = time.monotonic()

    def _turn(self) -> None:
        left = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        if left == 0.0:
            # Reaped by the caller's poll: the engine's exit code is part of the story.
            process_tree.kill_descendants()
            left = 0.05
        for key, _ in self._selector.select(left):
            key.data()

    def _read_orders(self) -> None:
        try:
            chunk = os.read(0, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(0)
            self._kill_at = time.monotonic()
            return
        *lines, self._orders = (self._orders + chunk).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # not an order: a newer actor's word
                self._obey(line.decode(errors="replace").split())

    def _obey(self, words: Sequence[str]) -> None:
        order, seconds = words
        if order != "stop":
            return
        kill_at = time.monotonic() + float(seconds)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        # To the first process only: engines of several processes order their own end.
        if self._engine is not None:
            self._engine.terminate()

    def _read_output(self) -> bool:
        """Passes on what the engine printed; false if there was nothing to read."""
        assert self._engine is not None
        assert self._engine.stdout is not None
        try:
            chunk = os.read(self._engine.stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._engine.stdout.fileno())
            return False
        # Progress bars end their lines with a carriage return.
        *lines, rest = re.split(rb"[\r\n]+", self._output + chunk)
        self._output = rest[-_CHUNK:]
        for line in lines:
            self._tell(line=line.decode(errors="replace")[:LINE_LIMIT])
        return True

    def _tell(self, **event: Any) -> bool:
        """Writes one event; false if nobody takes it. An actor that hangs must not stop us."""
        try:
            os.write(1, json.dumps(event, ensure_ascii=False).encode() + b"\n")
        except BlockingIOError:
            return False
        except OSError:  # the actor is gone; standard input says so too
            return True
        return True

    def _tell_exit(self, code: int) -> None:
        if self._output:
            self._tell(line=self._output.decode(errors="replace")[:LINE_LIMIT])
        deadline = time.monotonic() + 5.0
        while not self._tell(exit=code) and time.monotonic() < deadline:
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
