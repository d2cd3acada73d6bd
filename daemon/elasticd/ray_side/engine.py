"""One engine's life as its actor sees it: started, watched, stopped. Threads, no ray.

All state is behind one lock; `snapshot` never waits for the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from elasticd.node.engine_supervisor import sweep_orphans
from elasticd.node.ports import forget_claim
from elasticd.ray_side.engine_outcome import MemoryKiller, cause_of_end
from elasticd.ray_side.engine_probe import counters, health_problem
from elasticd.ray_side.engine_start import EngineStart, start_supervisor
from elasticd.ray_side.load_phases import load_phase
from elasticd.ray_side.memory_gate import MemoryGate, NotEnoughMemory
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
    holding: tuple[str, ...] = ()
    answers: bool = True


class Engine:
    """Starts the engine, once there is memory for it. Takes over `claim`, which holds the port.

    `let_go` is called if the GPUs were held by somebody else, at the moment they are free.
    """

    def __init__(
        self,
        start: EngineStart,
        claim: int,
        gate: MemoryGate,
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._claim = claim
        self._gate = gate
        self._let_go = let_go
        self._lock = threading.Lock()
        self._state = EngineState()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._exit: int | None = None
        self._health = ""
        self._stopping = threading.Event()
        self._gone = threading.Event()
        self._killer = MemoryKiller.watching()
        self._start_deadline = time.monotonic() + start.start_timeout
        self._supervisor: subprocess.Popen[bytes] | None = None
        for work in (self._live, self._probe):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def snapshot(self) -> EngineState:
        """What is known now; of a start also what its health call gave last."""
        with self._lock:
            return replace(self._state, load_phase=self._doing())

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
        self._stopping.set()
        with self._lock:
            supervisor = self._supervisor
        if supervisor is None:
            return
        assert supervisor.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # already gone: the event says so
            supervisor.stdin.write(f"stop {grace:.3f}\n".encode())
            supervisor.stdin.flush()

    def _live(self) -> None:
        """From the wait for memory to the end of everything below the supervisor."""
        error = ""
        try:
            supervisor = self._bring_up()
            if supervisor is not None:
                self._follow(supervisor)
                error = self._cause()
        except (OSError, NotEnoughMemory) as problem:
            error = str(problem)
        with self._lock:
            held = bool(self._state.holding)
            self._state = replace(
                self._state,
                phase="stopped",
                stalled_for=None,
                error=self._state.error or error,
                holding=(),
            )
        forget_claim(self._start.address.port)
        self._gone.set()
        if held:
            self._let_go()

    def _bring_up(self) -> subprocess.Popen[bytes] | None:
        """The running supervisor; `None`: told to stop before."""
        try:
            if not self._gate.wait(
                self._start.weights, self._start_deadline, self._say, self._stopping
            ):
                return None
            self._say("starting engine")
            with self._lock:
                if self._stopping.is_set():
                    return None
                self._supervisor = start_supervisor(self._start, self._claim)
                return self._supervisor
        finally:
            os.close(self._claim)

    def _doing(self) -> str:
        """What a start is at, in words. Under the lock."""
        known = self._state.load_phase
        starting = self._state.phase == "starting" and self._supervisor is not None
        return f"{known}, {self._health}" if starting and self._health else known

    def _say(self, phase: str) -> None:
        with self._lock:
            self._state = replace(self._state, load_phase=phase)

    def _follow(self, supervisor: subprocess.Popen[bytes]) -> None:
        assert supervisor.stdout is not None
        assert supervisor.stdin is not None
        with supervisor.stdout as events:
            for raw in events:
                event = json.loads(raw)
                if "line" in event:
                    self._heard(event["line"])
                elif "held" in event:
                    self._is_held(tuple(event["held"]))
                elif "exit" in event:
                    self._exit = int(event["exit"])
        supervisor.wait()
        with contextlib.suppress(OSError):
            supervisor.stdin.close()
        if self._exit is None:
            # The supervisor itself was killed: what it watched may still run.
            sweep_orphans(self._start.folder)

    def _cause(self) -> str:
        """Why it is over; empty if it was asked to end."""
        with self._lock:
            if self._state.error or self._state.phase == "stopping":
                return self._state.error
            tail = tuple(self._tail)
        return cause_of_end(self._exit, tail, self._killer)

    def _is_held(self, holders: tuple[str, ...]) -> None:
        """There will be no engine; as long as this actor lives, Ray gives the GPUs to nobody."""
        with self._lock:
            error = f"no engine was started: {'; '.join(holders)}"
            self._state = replace(
                self._state, phase="stopped", load_phase="", error=error, holding=holders
            )

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
            if phase not in ("starting", "ready"):
                continue
            problem = health_problem(self._start.address)
            with self._lock:
                self._health = problem
            if not problem:
                last_healthy = now
                self._is_healthy(now, progress)
            elif phase == "ready":
                self._is_silent(now - last_healthy)
            elif now > self._start_deadline:
                self._give_up()

    def _is_healthy(self, now: float, progress: Progress) -> None:
        seen = counters(self._start.address)
        with self._lock:
            if self._state.phase not in ("starting", "ready"):
                return
            self._state = replace(
                self._state,
                phase="ready",
                load_phase="",
                answers=True,
                counters=seen or self._state.counters,
                stalled_for=progress.observe(now, seen),
            )

    def _is_silent(self, seconds: float) -> None:
        with self._lock:
            if self._state.phase != "ready":
                return
            stalled = self._state.stalled_for
            if seconds >= HEALTH_PATIENCE:
                stalled = max(seconds, stalled or 0.0)
            self._state = replace(self._state, answers=False, stalled_for=stalled)

    def _give_up(self) -> None:
        with self._lock:
            if self._state.phase != "starting":
                return
            self._state = replace(
                self._state,
                phase="stopping",
                error=f"not ready within {self._start.start_timeout:.0f} s; last seen: "
                f"{self._doing()}",
            )
        self._order_stop(STARTING_GRACE)
