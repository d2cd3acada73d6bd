"""Makes an agent's order from the core's intention and the operator's specs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from elasticd.agent_api.messages import ReplicaOrder
from elasticd.core.actions import StartReplica
from elasticd.core.specs import FleetSpec, ModelSpec

Env = tuple[tuple[str, str], ...]


class UnknownSpec(Exception):
    """The replica is of a version of its model that is not configured any more."""


@dataclass(frozen=True, slots=True)
class EnginePorts:
    """Where engines may listen on a machine, both ends included."""

    first: int = 20000
    last: int = 20999


class OrderMaker:
    """Knows the models by spec hash; `key_of` makes the key that opens an engine's guard.

    Every version that was configured in this life stays known: while a changed model is rolled
    out, replicas of both versions are ordered about.
    """

    def __init__(self, key_of: Callable[[str, int], str], ports: EnginePorts) -> None:
        self._specs: dict[str, ModelSpec] = {}
        self._secrets: dict[str, Callable[[], Env]] = {}
        self._fetch_env: Callable[[], Env] = tuple
        self._key_of = key_of
        self._ports = ports

    def learn(
        self,
        fleet: FleetSpec,
        fetch_env: Callable[[], Env] = tuple,
        secret_env: Callable[[str], Env] = lambda _: (),
    ) -> None:
        """Takes what is configured now.

        `fetch_env` gives mirror and token, `secret_env` what a model's own environment keeps
        secret. They are asked for each order, so that a rotated token needs no reload, and the
        answers go into orders alone.
        """
        self._specs.update((model.spec_hash, model) for model in fleet.models)
        self._secrets.update(
            (model.spec_hash, partial(secret_env, model.name)) for model in fleet.models
        )
        self._fetch_env = fetch_env

    def make(self, action: StartReplica) -> ReplicaOrder:
        """Raises `UnknownSpec` for a spec hash that has not been configured in this life, and
        what reading a secret raises."""
        spec = self._specs.get(action.spec_hash)
        if spec is None:
            raise UnknownSpec(
                f"model {action.model!r} is not configured with spec {action.spec_hash[:12]}"
            )
        secrets = self._secrets[action.spec_hash]()
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
            engine_env=tuple({**dict(spec.engine.env), **dict(secrets)}.items()),
            port_min=self._ports.first,
            port_max=self._ports.last,
            start_timeout=spec.start_timeout,
            weights=spec.weights,
            fetch_timeout=spec.fetch_timeout,
            fetch_env=self._fetch_env() if spec.weights else (),
        )
