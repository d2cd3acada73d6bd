"""Stands between a replica's actor and its engine: nothing of the engine outlives either.

    python -m elasticd.node.engine_supervisor NODE_ID [OPTIONS] -- ENGINE ARGV…

Standard library only. It leaves the actor's process tree and session, so that whoever kills the
actor's children does not kill it first, locks the GPUs, and starts the engine as a process group
below itself. Standard input is the actor's hand: the line `stop SECONDS` ends the engine gently
within that time, and its end (the actor died, however) ends the engine at once. Standard output
tells, one JSON object a line: `{"line": …}` what the engine prints, `{"held": […]}` that there will
be no engine since these GPUs are not free, `{"exit": N}` that the engine and every descendant of it
is gone, or that the GPUs are free at last. The environment is handed on; the engine's key is in
there.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path
from types import FrameType
from typing import Any

from elasticd.node import process_tree
from elasticd.node.gpu_claim import Driver, GpuClaim
from elasticd.node.leftovers import (
    MARKER,
    OOM_SCORE,
    EngineSession,
    end_orphans,
    mark,
    node_folder,
)

# With this length an event is below PIPE_BUF whatever its characters: written whole or not at all.
LINE_LIMIT = 600
NOT_STARTED = 75
_CLAIM_POLL = 0.25
_CHUNK = 65536


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until the engine is gone; returns the engine's exit code as a shell would show it."""
    own, engine = _split(list(sys.argv[1:] if argv is None else argv))
    parser = argparse.ArgumentParser(prog="engine_supervisor")
    parser.add_argument("node_id", help="for people who look at the process table")
    parser.add_argument("--folder", type=Path, default=node_folder(os.environ))
    parser.add_argument("--gpu", action="append", default=[])
    parser.add_argument("--nvidia", action="store_true", help="ask the driver who uses the GPUs")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds for held GPUs")
    options = parser.parse_args(own)
    if not engine:
        parser.error("the engine's command is missing after --")
    if os.fork():
        os._exit(0)
    os.setsid()
    process_tree.become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    driver = Driver() if options.nvidia else None
    claim = GpuClaim(options.folder, options.gpu, driver)
    return _Supervisor(options.folder, claim, engine, options.patience).run()


def sweep_orphans(folder: Path | None = None) -> int:
    """Ends engines on this node whose supervisor is dead; how many processes there were.

    `folder`: the node's, if not the environment's. Raises `TimeoutError` if some do not end.
    """
    return end_orphans(folder or node_folder(os.environ))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


class _Supervisor:
    """One engine, from the claim of its GPUs to the last descendant's end."""

    def __init__(self, folder: Path, claim: GpuClaim, argv: Sequence[str], patience: float) -> None:
        self._folder = folder
        self._claim = claim
        self._argv = argv
        self._patience = patience
        self._selector = selectors.DefaultSelector()
        self._orders = b""
        self._output = b""
        self._kill_at: float | None = None
        self._deserted = False
        self._engine: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        self._listen_to_signals()
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
        self._selector.register(0, selectors.EVENT_READ, self._read_orders)
        if not self._gpus_are_ours():
            self._tell_exit(NOT_STARTED)
            return NOT_STARTED
        try:
            self._engine = self._start()
            record = EngineSession.of(self._engine.pid).save(self._folder)
        except OSError as problem:
            process_tree.end_descendants()
            self._tell(line=f"the engine cannot be started: {problem}")
            self._tell_exit(127)
            return 127
        code = self._watch(self._engine)
        record.unlink(missing_ok=True)
        self._tell_exit(code)
        return code if code >= 0 else 128 - code

    def _watch(self, engine: subprocess.Popen[bytes]) -> int:
        """Until the engine and all below it have ended; the engine's exit code."""
        assert engine.stdout is not None
        output = engine.stdout.fileno()
        os.set_blocking(output, False)
        self._selector.register(output, selectors.EVENT_READ, self._read_output)
        while engine.poll() is None:
            self._turn()
        process_tree.end_descendants()
        while self._read_output():
            pass
        return engine.returncode

    def _gpus_are_ours(self) -> bool:
        """False: asked to stop meanwhile, or given up; then it was told who holds them.

        Given up, it stays until they are free or the actor ends: as long as the actor lives, Ray
        gives these GPUs to nobody.
        """
        deadline = time.monotonic() + self._patience
        told: list[str] = []
        while held := self._claim.attempt():
            if time.monotonic() >= deadline:
                sentences = self._claim.sentences(held)
                if sentences != told:
                    told = sentences
                    self._tell(held=told)
            for key, _ in self._selector.select(_CLAIM_POLL):
                key.data()
            if self._deserted or (self._kill_at is not None and not told):
                return False
        return not told and self._kill_at is None

    def _start(self) -> subprocess.Popen[bytes]:
        die_with_us = process_tree.die_with_parent()

        def in_child() -> None:
            die_with_us()
            _offer_to_memory_killer()

        return subprocess.Popen(
            list(self._argv),
            env={**os.environ, MARKER: mark(self._folder, os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self._claim.descriptors,
            preexec_fn=in_child,
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
        self._deserted = True

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
            self._deserted = True
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


def _offer_to_memory_killer() -> None:
    """In the child, before it becomes the engine; all below it inherit the score."""
    with contextlib.suppress(OSError):  # a hardened container may forbid it
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


if __name__ == "__main__":
    sys.exit(main())
