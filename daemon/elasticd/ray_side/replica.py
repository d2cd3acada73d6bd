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
from typing import Any

from elasticd.agent_api.messages import ReplicaOrder, ReplicaReport
from elasticd.node.engine_supervisor import sweep_orphans
from elasticd.node.ports import claim_port
from elasticd.ray_side.devices import DeviceMismatch, check_devices, nvidia_devices
from elasticd.ray_side.engine import Engine
from elasticd.ray_side.engine_command import engine_command
from elasticd.ray_side.engine_probe import EngineAddress

STATE_TAIL = 20
# An agent that died between making the actor and its `start` leaves it without an order.
ORDER_PATIENCE = 120.0


def _assigned() -> Sequence[str]:
    from elasticd.ray_side.private import assigned_gpus  # the rest of this module needs no ray

    return assigned_gpus()


class ReplicaActor:
    """`identity` holds `replica_id`, `incarnation`, `node_id`, `model`, `spec_hash`."""

    def __init__(
        self, identity: Mapping[str, Any], assigned: Callable[[], Sequence[str]] = _assigned
    ) -> None:
        self._identity = dict(identity)
        self._assigned = assigned
        self._born = time.monotonic()
        self._starting = threading.Lock()
        self._engine: Engine | None = None
        self._url = ""
        self._gpu_ids: tuple[str, ...] = ()
        self._ended = False
        self._error = ""

    def start(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Starts the engine; the same order again changes nothing. Answers like `state`."""
        with self._starting:
            if self._engine is None and not self._ended:
                try:
                    self._engine = self._start_engine(ReplicaOrder.from_json(order))
                except (DeviceMismatch, OSError, ValueError) as problem:
                    self._error = str(problem)
                    self._ended = True
        return self.state()

    def state(self) -> dict[str, Any]:
        """A `ReplicaReport` as JSON; never waits for the engine."""
        return self._report().to_json()

    def stop(self, grace: float) -> None:
        """Ends the engine within `grace` seconds; `stopped` is then seen in `state`."""
        with self._starting:
            if self._engine is None:
                self._ended = True
            else:
                self._engine.stop(grace)

    def logs(self, lines: int) -> list[str]:
        """The last lines the engine printed."""
        return list(self._engine.tail(lines)) if self._engine else []

    def _start_engine(self, order: ReplicaOrder) -> Engine:
        sweep_orphans(order.node_id)
        self._gpu_ids = check_devices(
            order.gpus, self._assigned(), os.environ, present=nvidia_devices
        )
        port, claim = claim_port(order.host, order.port_min, order.port_max)
        try:
            command = engine_command(order, port, self._gpu_ids, sys.executable, os.environ)
        except ValueError:
            os.close(claim)
            raise
        address = EngineAddress(order.host, port, order.key)
        self._url = address.url
        return Engine(command, address, order.node_id, order.start_timeout, claim)

    def _report(self) -> ReplicaReport:
        age = time.monotonic() - self._born
        engine = self._engine
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
            stderr_tail=engine.tail(STATE_TAIL),
        )

    def _plain_report(self, phase: str, age: float) -> ReplicaReport:
        return ReplicaReport(
            **self._identity,
            phase=phase,
            load_phase="waiting for its order" if phase == "starting" else "",
            gpu_ids=self._gpu_ids,
            since_start=age,
            error=self._error,
        )
