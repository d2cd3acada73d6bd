"""What `elasticd plan` is asked about: a model of the configuration, or of a directory."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.cli.common import config_path, configuration
from elasticd.core.fit import MemorySettings, ModelShape, read_settings, read_shape
from elasticd.core.specs import ModelSpec
from elasticd.errors import UsageError
from elasticd.nearest import did_you_mean
from elasticd.settings.fleet import to_fleet
from elasticd.settings.load import Configuration
from elasticd.settings.model import AUTO, Model
from elasticd.settings.model_files import read_model
from elasticd.settings.sources import parse_source
from elasticd.weights.source import HubSource


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with what of its configuration the plan depends on.

    `gpus` per replica; `None`: as few as hold it. `pools`: where it may run; `accelerators`: GPU
    kinds it may run on, empty: any. Without `configuration` there are no pools to look at.
    """

    name: str
    source: str
    shape: ModelShape
    settings: MemorySettings
    gpus: int | None = None
    pools: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    configuration: Configuration | None = None


def find_subject(args: argparse.Namespace) -> Subject:
    """Raises `UsageError` when the model is not known, or its shape cannot be told."""
    options = _options(args.engine_arg)
    directory = _directory(args.model)
    config: Configuration | None = None
    if args.config or directory is None or config_path(args).exists():
        config = configuration(args)
        model = next((m for m in config.settings.models if m.name == args.model), None)
        if model is not None:
            return _of_configuration(config, model, options)
    if directory is None:
        names = [m.name for m in config.settings.models] if config is not None else []
        hint = did_you_mean(args.model, names) or f"; models: {', '.join(names) or 'none'}"
        raise UsageError(
            f"{args.model!r} is neither a model of the configuration nor a directory with a "
            f"config.json{hint}"
        )
    pools = tuple(p.name for p in config.settings.node_pools) if config is not None else ()
    return Subject(
        name=args.model,
        source=f"file:{os.path.normpath(directory.absolute())}",
        shape=_shape(directory),
        settings=_settings(options),
        pools=pools,
        configuration=config,
    )


def _directory(text: str) -> Path | None:
    """The directory with a `config.json` that a text names, if it names one."""
    try:
        directory = Path(text).expanduser()
        return directory if (directory / "config.json").is_file() else None
    except (RuntimeError, OSError):  # nobody's home, a name that is too long
        return None


def _options(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`k=v` of the command line; a bare `k` is a flag that is set."""
    options = []
    for text in given:
        name, equals, value = text.lstrip("-").partition("=")
        if not name:
            raise UsageError(f"--engine-arg {text!r}: write NAME=VALUE, as max-model-len=32768")
        options.append((name, value if equals else "true"))
    return tuple(options)


def _settings(options: Sequence[tuple[str, str]]) -> MemorySettings:
    try:
        return read_settings(options)
    except ValueError as bad:
        raise UsageError(f"engine options: {bad}") from bad


def _shape(directory: Path) -> ModelShape:
    try:
        return read_model(directory)
    except (ValueError, OSError) as bad:
        raise UsageError(str(bad)) from bad


def _of_configuration(
    config: Configuration, model: Model, options: tuple[tuple[str, str], ...]
) -> Subject:
    fleet = to_fleet(config)
    spec = next(spec for spec in fleet.models if spec.name == model.name)
    source = parse_source(model.source)
    return Subject(
        name=model.name,
        source=str(source) if isinstance(source, HubSource) else model.source,
        shape=_shape_of(config, model, spec),
        settings=_settings((*spec.engine.args, *options)),
        gpus=None if model.gpus_per_replica == AUTO else model.gpus_per_replica,
        pools=spec.pools,
        accelerators=spec.accelerators,
        configuration=config,
    )


def _shape_of(config: Configuration, model: Model, spec: ModelSpec) -> ModelShape:
    if spec.shape is not None:
        return spec.shape
    source = parse_source(model.source)
    if isinstance(source, HubSource):
        return _looked_up(config, source)
    return _shape(Path(config.model_source(model)))


def _looked_up(config: Configuration, source: HubSource) -> ModelShape:
    """What the daemon has learnt of a hub's model, from its state directory."""
    from elasticd.runtime.source_file import SourceFile

    with contextlib.redirect_stdout(sys.stderr):  # where a damaged file would be warned of
        entry = SourceFile(config.state_dir).get(str(source))
    if entry is None or not entry.complete:
        raise UsageError(
            f"{source}: what it holds is not known in {config.state_dir} yet; the daemon looks it "
            "up when it runs. Until then plan with a directory that has its config.json"
        )
    if entry.config is None:
        raise UsageError(f"{source} has no config.json: what it needs cannot be told")
    try:
        return read_shape(entry.config, entry.weight_bytes)
    except ValueError as bad:
        raise UsageError(f"{source}: {bad}") from bad
