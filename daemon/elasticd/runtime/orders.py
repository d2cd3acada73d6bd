"""Makes an agent's order from the core's intention and the operator's specs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticd.agent_api.messages import ReplicaOrder
from elasticd.core.actions import StartReplica
from elasticd.core.specs import FleetSpec, ModelSpec


class UnknownSpec(Exception):
    """The replica is of a version of its model that is not configured any more."""


@dataclass(frozen=True, slots=True)
class EnginePorts:
    """Where engines may listen on a machine, both ends included."""

    first: int = 20000
    last: int = 20999


class OrderMaker:
    """Knows the models by spec hash; `key_of` makes the key that opens an engine's guard."""

    def __init__(
        self, fleet: FleetSpec, key_of: Callable[[str, int], str], ports: EnginePorts
    ) -> None:
        self._specs: dict[str, ModelSpec] = {m.spec_hash: m for m in fleet.models}
        self._key_of = key_of
        self._ports = ports

    def make(self, action: StartReplica) -> ReplicaOrder:
        """Raises `UnknownSpec` for a spec hash that is not configured."""
        spec = self._specs.get(action.spec_hash)
        if spec is None:
            raise UnknownSpec(
                f"model {action.model!r} is not configured with spec {action.spec_hash[:12]}"
            )
        return ReplicaOrder(
            replica_id=action.replica_id,
            incarnation=action.incarnation,
            node_id=action.node_id,
            model=action.model,
            spec_hash=action.spec_hash,
            gpus=action.gpus,
            model_path=spec.source.removeprefix("file:"),
            engine_kind=spec.engine.kind,
            key=self._key_of(action.replica_id, action.incarnation),
            host=action.address,
            engine_argv=spec.engine.argv,
            engine_args=spec.engine.args,
            engine_env=spec.engine.env,
            port_min=self._ports.first,
            port_max=self._ports.last,
            start_timeout=spec.start_timeout,
        )
