"""The weights' way to the node, as a replica's actor sees it: started, bounded, stopped. No ray.

The fetcher is a process of its own under the engine's supervisor: whatever ends the actor ends
it, and what it had so far stays on the disk for the next one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.agent_api.messages import ReplicaOrder
from elasticd.node.engine_supervisor import sweep_orphans
from elasticd.weights.progress import Fetched, FetchFailed, FetchProgress, from_line

DIRECTORY_VARIABLE = "ELASTICD_WEIGHTS_DIR"
FETCHER = "elasticd.weights.fetch"
TAIL_LINES = 50
_BEGINNING = "fetching weights"


@dataclass(frozen=True, slots=True)
class FetchState:
    """`phase`: `fetching`, `stopping` or `stopped`; the rest means what it does in a report."""

    phase: str = "fetching"
    load_phase: str = _BEGINNING
    error: str = ""


class Fetch:
    """Starts the fetcher at once. `arrived` is called, in a thread, with the directory.

    It is called at most once, and not after `stop`; `snapshot` says `fetching` until it returns.
    """

    def __init__(
        self, order: ReplicaOrder, environ: Mapping[str, str], arrived: Callable[[str], None]
    ) -> None:
        self._timeout = order.fetch_timeout
        self._arrived = arrived
        self._lock = threading.Lock()
        self._state = FetchState()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._directory = ""
        self._gone = threading.Event()
        self._supervisor = _start(order, environ)
        for work in (self._read_events, self._bound):
            threading.Thread(target=work, name=f"fetch{work.__name__}", daemon=True).start()

    def snapshot(self) -> FetchState:
        """What is known now; never waits for the fetcher."""
        with self._lock:
            return self._state

    def tail(self, lines: int) -> tuple[str, ...]:
        """The last lines the fetcher printed that are not news of its progress."""
        with self._lock:
            return tuple(self._tail)[-lines:] if lines > 0 else ()

    def stop(self) -> None:
        """Ends it at once; `stopped` comes with `snapshot`."""
        self._end("")

    def _end(self, error: str) -> None:
        with self._lock:
            if self._state.phase != "fetching":
                return
            self._state = replace(self._state, phase="stopping", error=error)
        assert self._supervisor.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # already gone: its events say so
            self._supervisor.stdin.write(b"stop 0\n")
            self._supervisor.stdin.flush()

    def _bound(self) -> None:
        if not self._gone.wait(self._timeout):
            self._end(
                f"weights took longer than {self._timeout:.0f} s, last: "
                f"{self.snapshot().load_phase}; raise fetch_timeout, or name a nearer "
                "weights.mirror"
            )

    def _read_events(self) -> None:
        exit_code = self._follow()
        self._gone.set()
        self._supervisor.wait()
        with contextlib.suppress(OSError):
            assert self._supervisor.stdin is not None
            self._supervisor.stdin.close()
        with self._lock:
            arrived = exit_code == 0 and bool(self._directory) and self._state.phase == "fetching"
            error = "" if arrived else self._cause(exit_code)
        if arrived:
            self._arrived(self._directory)
        elif exit_code is None:
            error = _swept(error)
        with self._lock:
            self._state = replace(self._state, phase="stopped", error=error)

    def _follow(self) -> int | None:
        """Hears the fetcher to its end; its exit code, `None` if nobody tells it."""
        exit_code = None
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as events:
            for raw in events:
                event = json.loads(raw)
                if "line" in event:
                    self._heard(event["line"])
                elif "exit" in event:
                    exit_code = int(event["exit"])
        return exit_code

    def _heard(self, line: str) -> None:
        told = from_line(line)
        with self._lock:
            match told:
                case FetchProgress():
                    load_phase = f"{_BEGINNING} {told}".rstrip()
                    self._state = replace(self._state, load_phase=load_phase)
                case Fetched(directory):
                    self._directory = directory
                case FetchFailed(sentence):
                    if not self._state.error:
                        self._state = replace(self._state, error=sentence)
                case None:
                    self._tail.append(line)

    def _cause(self, exit_code: int | None) -> str:
        """Why it is over without weights; empty if it was asked to end. Under the lock."""
        if self._state.error or self._state.phase == "stopping":
            return self._state.error
        last = next((line for line in reversed(self._tail) if line.strip()), "it printed nothing")
        how = "its supervisor was killed" if exit_code is None else f"exit {exit_code}"
        return f"the fetch of the weights ended by itself ({how}): {last}"


def _swept(error: str) -> str:
    """The supervisor itself was killed: the fetcher may still run. What to say in the end."""
    try:
        sweep_orphans()
    except TimeoutError as left:
        return f"{error}; {left}"
    return error


def weights_directory(order: ReplicaOrder, environ: Mapping[str, str]) -> Path:
    """Where weights lie on this node: as configured, else in the user's cache, else by the node.

    Machines that are played by one host share its user's cache, so it fetches once.
    """
    configured = dict(order.fetch_env).get(DIRECTORY_VARIABLE)
    if configured:
        return Path(configured)
    if cache := environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "elasticd" / "weights"
    if node := environ.get("ELASTICD_NODE_DIR"):
        return Path(node) / "weights"
    return Path(environ.get("HOME") or "~").expanduser() / ".elasticd-node" / "weights"


def with_weights(order: ReplicaOrder, directory: str) -> ReplicaOrder:
    """The order of an engine whose weights lie in `directory`, and which asks no hub for more."""
    return replace(
        order,
        weights="",
        model_path=directory,
        engine_env=(("HF_HUB_OFFLINE", "1"), *order.engine_env),
    )


def _start(order: ReplicaOrder, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    directory = weights_directory(order, environ)
    fetcher = [sys.executable, "-m", FETCHER, "--weights", order.weights, "--dir", str(directory)]
    return subprocess.Popen(
        [sys.executable, "-m", "elasticd.node.engine_supervisor", order.node_id, "--", *fetcher],
        # Mirror and token travel here only: arguments are for everyone to read.
        env={**environ, **dict(order.fetch_env)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
