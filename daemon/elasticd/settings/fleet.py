"""From settings to the values the core decides on."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from elasticd.core import specs
from elasticd.settings.load import Configuration
from elasticd.settings.model import CommandEngine, Model, NodePool


def to_fleet(configuration: Configuration) -> specs.FleetSpec:
    """Everything wanted, as one value."""
    settings = configuration.settings
    everywhere = tuple(pool.name for pool in settings.node_pools)
    return specs.FleetSpec(
        cluster=settings.cluster,
        models=tuple(_model(model, configuration, everywhere) for model in settings.models),
        pools=tuple(_pool(pool) for pool in settings.node_pools),
    )


def _pool(pool: NodePool) -> specs.NodePool:
    return specs.NodePool(
        name=pool.name,
        provider=pool.provider,
        max_nodes=pool.max_nodes,
        accelerators=pool.accelerators,
        boot_timeout=pool.boot_timeout,
        idle_timeout=pool.idle_timeout,
    )


def _model(
    model: Model, configuration: Configuration, everywhere: tuple[str, ...]
) -> specs.ModelSpec:
    source, engine = configuration.model_source(model), _engine(model)
    return specs.ModelSpec(
        name=model.name,
        source=source,
        engine=engine,
        spec_hash=spec_hash(source, engine, model.gpus_per_replica),
        gpus_per_replica=model.gpus_per_replica,
        pools=model.pools or everywhere,
        scaling=_scaling(model),
        accelerators=model.accelerators,
        max_wait=configuration.settings.gateway.max_wait,
        queue_limit=model.queue_limit,
        start_timeout=model.start_timeout,
        stall_timeout=model.stall_timeout,
        drain_timeout=model.drain_timeout,
    )


def _scaling(model: Model) -> specs.Scaling:
    scaling, default = model.scaling, specs.Scaling()
    to_zero = scaling.scale_to_zero_after
    return specs.Scaling(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        target_ongoing_requests=scaling.target_ongoing_requests,
        max_ongoing_requests=scaling.max_ongoing_requests,
        upscale_delay=scaling.upscale_delay,
        downscale_delay=scaling.downscale_delay,
        scale_to_zero_after=default.scale_to_zero_after if to_zero is None else to_zero,
    )


def _engine(model: Model) -> specs.Engine:
    command = model.engine.command if isinstance(model.engine, CommandEngine) else ()
    return specs.Engine(
        kind="command" if command else "vllm",
        argv=command,
        args=tuple((name, _option(value)) for name, value in sorted(model.engine_args.items())),
        env=tuple(sorted(model.engine_env.items())),
    )


def _option(value: Any) -> str:
    """An engine option as text: `true` and `false` are flags, lists and mappings travel as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def spec_hash(source: str, engine: specs.Engine, gpus: int) -> str:
    """Names one exact version: whatever changes what an engine answers changes it."""
    what = {
        "source": source,
        "kind": engine.kind,
        "argv": engine.argv,
        "args": engine.args,
        "env": engine.env,
        "gpus": gpus,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
