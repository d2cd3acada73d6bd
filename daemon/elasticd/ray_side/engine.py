"""One engine's life as its actor sees it: started, watched, stopped. Threads, no ray.

All state is behind one lock; `snapshot` never waits for the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from elasticd.node.engine_supervisor import sweep_orphans
from elasticd.ray_side.engine_command import EngineCommand
from elasticd.ray_side.engine_probe import EngineAddress, counters, healthy
from elasticd.ray_side.load_phases import load_phase
from elasticd.ray_side.progress import Counters, Progress

TAIL_LINES = 200
PROBE_EVERY = 1.0
# A starting engine may hang in its handshake for minutes when told to end: it gets no more.
STARTING_GRACE = 3.0
# A healthy engine under load answers late; silence beyond this counts as standing still.
HEALTH_PATIENCE = 5.0
_UNTOLD = Counters()
# The engine logs our own questions; the tail belongs to what matters.
_OWN_PROBE = re.compile(r'"GET /(health|metrics) HTTP/')


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is known now. `phase` and the rest mean what they mean in `ReplicaReport`."""

    phase: str = "starting"
    load_phase: str = "starting engine"
    counters: Counters = _UNTOLD
    stalled_for: float | None = None
    error: str = ""


class Engine:
    """Starts the engine at once, and takes over `claim`, the descriptor that holds the port."""

    def __init__(
        self,
        command: EngineCommand,
        address: EngineAddress,
        node_id: str,
        start_timeout: float,
        claim: int,
    ) -> None:
        self._address = address
        self._node_id = node_id
        self._lock = threading.Lock()
        self._state = EngineState()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._exit: int | None = None
        self._gone = threading.Event()
        self._start_deadline = time.monotonic() + start_timeout
        self._start_timeout = start_timeout
        self._supervisor = _start_supervisor(command, node_id, claim)
        for work in (self._read_events, self._probe):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def snapshot(self) -> EngineState:
        """What is known now."""
        with self._lock:
            return self._state

    def tail(self, lines: int) -> tuple[str, ...]:
        """The last lines the engine printed."""
        with self._lock:
            return tuple(self._tail)[-lines:] if lines > 0 else ()

    def stop(self, grace: float) -> None:
        """Ends it within `grace` seconds; returns at once, `stopped` comes with `snapshot`."""
        with self._lock:
            if self._state.phase == "stopped":
                return
            if self._state.phase == "starting":
                grace = min(grace, STARTING_GRACE)
            self._state = replace(self._state, phase="stopping")
        self._order_stop(grace)

    def wait_gone(self, timeout: float) -> bool:
        """Whether the engine and all below it are gone within `timeout` seconds."""
        return self._gone.wait(timeout)

    def _order_stop(self, grace: float) -> None:
        assert self._supervisor.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # already gone: the event says so
            self._supervisor.stdin.write(f"stop {grace:.3f}\n".encode())
            self._supervisor.stdin.flush()

    def _read_events(self) -> None:
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as events:
            for raw in events:
                event = json.loads(raw)
                if "line" in event:
                    self._heard(event["line"])
                elif "exit" in event:
                    self._exit = int(event["exit"])
        self._supervisor.wait()
        if self._exit is None:
            # The supervisor itself was killed: what it watched may still run.
            sweep_orphans(self._node_id)
        with self._lock:
            self._state = replace(
                self._state, phase="stopped", stalled_for=None, error=self._cause()
            )
        with contextlib.suppress(OSError):
            assert self._supervisor.stdin is not None
            self._supervisor.stdin.close()
        self._gone.set()

    def _cause(self) -> str:
        """Why it is over; empty if it was asked to end. Under the lock."""
        if self._state.error or self._state.phase == "stopping":
            return self._state.error
        last = next((line for line in reversed(self._tail) if line.strip()), "it printed nothing")
        how = "its supervisor was killed" if self._exit is None else f"exit {self._exit}"
        return f"the engine ended by itself ({how}): {last}"

    def _heard(self, line: str) -> None:
        if _OWN_PROBE.search(line):
            return
        with self._lock:
            self._tail.append(line)
            if self._state.phase == "starting" and (phase := load_phase(line)):
                self._state = replace(self._state, load_phase=phase)

    def _probe(self) -> None:
        progress = Progress()
        last_healthy = time.monotonic()
        while not self._gone.wait(PROBE_EVERY):
            phase = self.snapshot().phase
            now = time.monotonic()
            if healthy(self._address):
                last_healthy = now
                self._is_healthy(now, progress)
            elif phase == "ready":
                self._is_silent(now - last_healthy)
            elif phase == "starting" and now > self._start_deadline:
                self._give_up()

    def _is_healthy(self, now: float, progress: Progress) -> None:
        seen = counters(self._address)
        with self._lock:
            if self._state.phase not in ("starting", "ready"):
                return
            stalled = progress.observe(now, seen) if seen else self._state.stalled_for
            self._state = replace(
                self._state,
                phase="ready",
                load_phase="",
                counters=seen or self._state.counters,
                stalled_for=stalled,
            )

    def _is_silent(self, seconds: float) -> None:
        if seconds < HEALTH_PATIENCE:
            return
        with self._lock:
            if self._state.phase == "ready":
                stalled = max(seconds, self._state.stalled_for or 0.0)
                self._state = replace(self._state, stalled_for=stalled)

    def _give_up(self) -> None:
        with self._lock:
            self._state = replace(
                self._state,
                phase="stopping",
                error=f"not ready within {self._start_timeout:.0f} s; last seen: "
                f"{self._state.load_phase}",
            )
        self._order_stop(STARTING_GRACE)


def _start_supervisor(command: EngineCommand, node_id: str, claim: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", node_id, "--", *command.argv]
    try:
        return subprocess.Popen(
            argv,
            env=dict(command.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A session of its own would come too late against a kill of the actor's children;
            # the supervisor leaves the tree by itself.
            pass_fds=(claim,),
        )
    finally:
        os.close(claim)
