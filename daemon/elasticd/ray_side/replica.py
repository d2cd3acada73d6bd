"""The replica actor: one engine and its GPUs. Its four methods are frozen.

An actor outlives many agents, so an agent of any later version must still manage it: `start`,
`state`, `stop`, `logs` keep their names and meaning, and everything travels as plain JSON values.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from elasticd.agent_api.messages import WAITING_FOR_ORDER, ReplicaOrder, ReplicaReport
from elasticd.node.engine_supervisor import sweep_orphans
from elasticd.node.host_memory import weights_size
from elasticd.node.leftovers import node_folder
from elasticd.node.ports import claim_port
from elasticd.ray_side.devices import DeviceMismatch, check_devices, driver_is_asked
from elasticd.ray_side.engine import Engine
from elasticd.ray_side.engine_command import engine_command
from elasticd.ray_side.engine_probe import EngineAddress
from elasticd.ray_side.engine_start import EngineStart
from elasticd.ray_side.fetching import Fetch, FetchState, with_weights
from elasticd.ray_side.memory_gate import MemoryGate

STATE_TAIL = 20
# An agent that died between making the actor and its `start` leaves it without an order.
ORDER_PATIENCE = 120.0


def _assigned() -> Sequence[str]:
    from elasticd.ray_side.private import assigned_gpus  # the rest of this module needs no ray

    return assigned_gpus()


def _leave() -> None:
    """Ends this process, and with it the actor's claim in Ray."""
    os._exit(0)


class ReplicaActor:
    """`identity` holds `replica_id`, `incarnation`, `node_id`, `model`, `spec_hash`."""

    def __init__(
        self,
        identity: Mapping[str, Any],
        assigned: Callable[[], Sequence[str]] = _assigned,
        leave: Callable[[], None] = _leave,
    ) -> None:
        self._leave = leave
        self._identity = dict(identity)
        self._assigned = assigned
        self._born = time.monotonic()
        self._starting = threading.Lock()
        self._fetch: Fetch | None = None
        self._engine: Engine | None = None
        self._url = ""
        self._given: tuple[str, ...] = ()
        self._gpu_ids: tuple[str, ...] = ()
        self._ended = False
        self._error = ""

    def start(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Starts the engine; the same order again changes nothing. Answers like `state`.

        Weights that must be fetched come first, and the engine once they are there.
        """
        with self._starting:
            if self._engine is None and self._fetch is None and not self._ended:
                self._given = tuple(self._assigned())
                self._begin(ReplicaOrder.from_json(order))
        return self.state()

    def state(self) -> dict[str, Any]:
        """A `ReplicaReport` as JSON; never waits for the engine."""
        return self._report().to_json()

    def stop(self, grace: float) -> None:
        """Ends the engine within `grace` seconds; `stopped` is then seen in `state`."""
        with self._starting:
            if self._engine is not None:
                self._engine.stop(grace)
                return
            self._ended = True
            if self._fetch is not None:
                self._fetch.stop()

    def logs(self, lines: int) -> list[str]:
        """The last lines the engine, or before it the fetcher, printed."""
        teller = self._engine or self._fetch
        return list(teller.tail(lines)) if teller else []

    def _begin(self, order: ReplicaOrder) -> None:
        """The fetch or the engine. Under the lock."""
        try:
            if order.weights:
                sweep_orphans()
                self._fetch = Fetch(order, os.environ, partial(self._weights_arrived, order))
            else:
                self._engine = self._start_engine(order)
        except (DeviceMismatch, OSError, ValueError) as problem:
            self._error = str(problem)
            self._ended = True

    def _weights_arrived(self, order: ReplicaOrder, directory: str) -> None:
        with self._starting:
            if not self._ended:
                self._begin(with_weights(order, directory))

    def _start_engine(self, order: ReplicaOrder) -> Engine:
        self._gpu_ids = check_devices(order.gpus, self._given, os.environ)
        port, claim = claim_port(order.host, order.port_min, order.port_max)
        try:
            command = engine_command(order, port, self._gpu_ids, sys.executable, os.environ)
        except ValueError:
            os.close(claim)
            raise
        start = EngineStart(
            command=command,
            address=EngineAddress(order.host, port, order.key),
            node_id=order.node_id,
            folder=node_folder(os.environ),
            gpus=self._gpu_ids,
            nvidia=driver_is_asked(os.environ),
            start_timeout=order.start_timeout,
            weights=weights_size(order.model_path) if order.model_path else None,
        )
        self._url = start.address.url
        return Engine(start, claim, MemoryGate(), self._leave)

    def _report(self) -> ReplicaReport:
        age = time.monotonic() - self._born
        # Before the engine is looked for: a fetch is over only when the engine is there.
        fetched = self._fetch.snapshot() if self._fetch else None
        engine = self._engine
        if engine is None and fetched is not None:
            return self._fetch_report(fetched, age)
        if engine is None:
            if not self._ended and age > ORDER_PATIENCE:
                self._ended = True
                self._error = f"no order to start within {ORDER_PATIENCE:.0f} s"
            return self._plain_report("stopped" if self._ended else "starting", age)
        state = engine.snapshot()
        return ReplicaReport(
            **self._identity,
            phase=state.phase,
            url=self._url,
            load_phase=state.load_phase,
            gpu_ids=self._gpu_ids,
            running=state.counters.running,
            waiting=state.counters.waiting,
            generated_tokens=state.counters.generated,
            stalled_for=state.stalled_for,
            since_start=age,
            error=state.error,
            holding=state.holding,
            answers=state.answers,
            stderr_tail=engine.tail(STATE_TAIL),
        )

    def _fetch_report(self, state: FetchState, age: float) -> ReplicaReport:
        """While there is no engine. One that could not be started leaves its own error."""
        return ReplicaReport(
            **self._identity,
            phase=state.phase,
            load_phase=state.load_phase if state.phase == "fetching" else "",
            since_start=age,
            error=self._error or state.error,
            stderr_tail=tuple(self.logs(STATE_TAIL)),
        )

    def _plain_report(self, phase: str, age: float) -> ReplicaReport:
        return ReplicaReport(
            **self._identity,
            phase=phase,
            load_phase=WAITING_FOR_ORDER if phase == "starting" else "",
            gpu_ids=self._gpu_ids,
            since_start=age,
            error=self._error,
        )
