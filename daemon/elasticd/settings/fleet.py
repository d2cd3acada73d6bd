"""From settings to the values the core decides on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from elasticd.core import specs
from elasticd.core.fit import MemorySettings, ModelShape, read_settings
from elasticd.settings.budget_rules import price_currency
from elasticd.settings.engine_env import identity, secret_values, shown
from elasticd.settings.engine_options import as_text
from elasticd.settings.load import Configuration
from elasticd.settings.model import AUTO, CommandEngine, Model, NodePool
from elasticd.settings.model_files import read_model
from elasticd.settings.sources import Resolved, parse_source
from elasticd.weights.source import HubSource

VISIBILITY: Final = 60.0
"""Seconds for which a new machine may be missing from lists, where the provider does not say."""

NOTHING_RESOLVED: Final[Mapping[str, Resolved]] = MappingProxyType({})


def to_fleet(
    configuration: Configuration, resolved: Mapping[str, Resolved] = NOTHING_RESOLVED
) -> specs.FleetSpec:
    """Everything wanted, as one value. `resolved`: what a hub said, by `str(HubSource)`."""
    settings = configuration.settings
    everywhere = tuple(pool.name for pool in settings.node_pools)
    return specs.FleetSpec(
        cluster=settings.cluster,
        models=tuple(
            _model(model, configuration, everywhere, resolved) for model in settings.models
        ),
        pools=tuple(_pool(pool, configuration) for pool in settings.node_pools),
        budget=_budget(configuration),
    )


def hub_sources(configuration: Configuration) -> tuple[HubSource, ...]:
    """What a hub must be asked about, each once, in the order of the file."""
    sources = (parse_source(model.source) for model in configuration.settings.models)
    return tuple(dict.fromkeys(s for s in sources if isinstance(s, HubSource)))


def secret_env(configuration: Configuration, name: str) -> tuple[tuple[str, str], ...]:
    """What the fleet does not tell of the environment of model `name`'s engines.

    Raises `SecretUnavailable`.
    """
    models = (model for model in configuration.settings.models if model.name == name)
    return tuple(pair for model in models for pair in secret_values(model.engine_env))


def source_text(model: Model) -> str:
    """The source as `resolved` knows it: a hub's with its revision, others as they stand."""
    source = parse_source(model.source)
    return str(source) if isinstance(source, HubSource) else model.source


def _budget(configuration: Configuration) -> specs.Budget:
    """Everything in one currency; without caps and rates in that of the pools' own prices."""
    budget = configuration.settings.budget
    hour, day = budget.max_per_hour, budget.max_per_day
    return specs.Budget(
        currency=budget.currency or price_currency(configuration.options.values()) or "USD",
        max_per_hour=None if hour is None else budget.converted(hour),
        max_per_day=None if day is None else budget.converted(day),
        rates=tuple(sorted((name, rate.micros) for name, rate in budget.rates.items())),
    )


def place_of(pool: NodePool, configuration: Configuration) -> str:
    """Where the pool's machines are, in words that hold no secret."""
    plugin, options = configuration.plugins[pool.name], configuration.options[pool.name]
    told = (f"{name} {getattr(options, name)}" for name in plugin.place)
    return ", ".join((f"provider {pool.provider}", *told))


def _visibility(pool: NodePool, configuration: Configuration) -> float:
    plugin, options = configuration.plugins[pool.name], configuration.options[pool.name]
    return VISIBILITY if plugin.visibility is None else plugin.visibility(options)


def _pool(pool: NodePool, configuration: Configuration) -> specs.NodePool:
    return specs.NodePool(
        visibility_grace=_visibility(pool, configuration),
        place=place_of(pool, configuration),
        name=pool.name,
        provider=pool.provider,
        max_nodes=pool.max_nodes,
        accelerators=pool.accelerators,
        boot_timeout=pool.boot_timeout,
        gpu_timeout=pool.gpu_timeout,
        max_loads=pool.max_loads,
        idle_timeout=pool.idle_timeout,
        rebalance=pool.rebalance,
    )


def _model(
    model: Model,
    configuration: Configuration,
    everywhere: tuple[str, ...],
    resolved: Mapping[str, Resolved],
) -> specs.ModelSpec:
    weights, shape, unresolved = _exactly(model, configuration, resolved)
    source, engine = configuration.model_source(model), _engine(model)
    return specs.ModelSpec(
        name=model.name,
        source=source,
        engine=engine,
        spec_hash=spec_hash(
            weights or source, engine, model.gpus_per_replica, identity(model.engine_env)
        ),
        gpus_per_replica=model.gpus_per_replica,
        pools=model.pools or everywhere,
        scaling=_scaling(model),
        accelerators=model.accelerators,
        max_wait=configuration.settings.gateway.max_wait,
        queue_limit=model.queue_limit,
        start_timeout=model.start_timeout,
        stall_timeout=model.stall_timeout,
        drain_timeout=model.drain_timeout,
        fetch_timeout=model.fetch_timeout,
        weights=weights,
        unresolved=unresolved,
        start_attempts=model.start_attempts,
        shape=shape,
        memory=read_settings(engine.args) if engine.kind == "vllm" else MemorySettings(),
        continues=engine.kind == "vllm" and model.recovery == "continue",
    )


def _exactly(
    model: Model, configuration: Configuration, resolved: Mapping[str, Resolved]
) -> tuple[str, ModelShape | None, str]:
    """The weights to fetch, the model's shape, and why either is not known yet."""
    source = parse_source(model.source)
    if isinstance(source, HubSource):
        known = resolved.get(str(source)) or _named_exactly(source)
        if known is None:
            return "", None, f"the commit of {source} has not been looked up yet"
        weights, shape, why = str(source.at(known.commit)), known.shape, "no config.json was read"
    else:
        weights, shape, why = "", *_shape(Path(configuration.model_source(model)))
    if model.gpus_per_replica == AUTO and shape is None:
        return weights, None, f"how many GPUs {source_text(model)} needs is not known: {why}"
    return weights, shape, ""


def _named_exactly(source: HubSource) -> Resolved | None:
    """A commit needs no hub to say what it is."""
    return Resolved(source.revision) if source.is_exact else None


def _shape(directory: Path) -> tuple[ModelShape | None, str]:
    """The shape, or why it is not known: many engines serve directories of another form."""
    try:
        return read_model(directory), ""
    except (ValueError, OSError) as bad:
        return None, str(bad)


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
    options = sorted(model.engine_args.items())
    return specs.Engine(
        kind="command" if command else "vllm",
        argv=command,
        args=tuple((name, as_text(name, value)) for name, value in options),
        env=tuple(sorted(shown(model.engine_env).items())),
    )


def spec_hash(source: str, engine: specs.Engine, gpus: int, env: Mapping[str, str]) -> str:
    """Names one exact version: whatever changes what an engine answers changes it.

    `source` is a directory, or a repository at its commit. All of the engine's options count, the
    data type among them: the same weights in another precision give other answers. `env` as
    `identity` has it: a secret that is rotated in its place is no other version.
    """
    what = {
        "source": source,
        "kind": engine.kind,
        "argv": engine.argv,
        "args": engine.args,
        "env": sorted(env.items()),
        "gpus": gpus,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
