"""The effective configuration: every default filled in, canonical units, absolute paths.

What is shown can be read back from anywhere and means the same. A secret is shown as the place
where it stands; one that stands in the file itself is hidden, and then there is no reading back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from elasticd.core import specs
from elasticd.settings.configuration import Configuration
from elasticd.settings.engine_env import HIDDEN, masked
from elasticd.settings.model import Model, NodePool, Settings
from elasticd.settings.notices import source_of
from elasticd.settings.sources import DEMO, FileSource, parse_source

_HEAD = """\
# The effective configuration of {path}
"""
_TO_ZERO = specs.Scaling().scale_to_zero_after
_HIDDEN = (
    "# {place} is hidden, and this cannot be read back:\n"
    "# write its place, {{file: PATH}} or {{env: NAME}}\n"
)
_ON_STOP = "# on_stop: keep under systemd, release in a terminal\n"


class _Plain(yaml.SafeDumper):
    """Writes equal values out again each time: aliases are not read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def show(configuration: Configuration) -> str:
    """As YAML."""
    data = effective(configuration)
    hidden = "".join(_HIDDEN.format(place=place) for place in _hidden(configuration))
    on_stop = "" if "on_stop" in data else _ON_STOP
    body = yaml.dump(data, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return _HEAD.format(path=configuration.path) + hidden + on_stop + body


def effective(configuration: Configuration) -> dict[str, Any]:
    """As plain data, which may be shown."""
    data = exact(configuration)
    for raw, model in zip(data["models"], configuration.settings.models, strict=True):
        raw["engine_env"] |= dict.fromkeys(masked(model.engine_env), HIDDEN)
    return data


def _hidden(configuration: Configuration) -> Iterator[str]:
    for index, model in enumerate(configuration.settings.models):
        for name in masked(model.engine_env):
            yield f"models[{index}].engine_env.{name}"


def exact(configuration: Configuration) -> dict[str, Any]:
    """As plain data, with all that stands in the file: never shown."""
    settings = _filled(configuration)
    data: dict[str, Any] = settings.model_dump(mode="json", exclude_none=True)
    for raw, pool in zip(data["node_pools"], settings.node_pools, strict=True):
        own = configuration.options[pool.name]
        raw |= own.model_dump(mode="json", exclude_none=True)
    for raw, model in zip(data["models"], settings.models, strict=True):
        # A flag without a value is written as nothing, which `exclude_none` takes for not given.
        raw["engine_args"] = dict(model.engine_args)
    return data


def _filled(configuration: Configuration) -> Settings:
    """The settings with what is derived from elsewhere written out."""
    settings, weights = configuration.settings, configuration.weights_dir
    everywhere = tuple(pool.name for pool in settings.node_pools)
    ray = settings.ray.model_copy(update={"head": "managed"} if settings.ray.managed else {})
    filled = {
        "state_dir": str(configuration.state_dir),
        "admin": settings.admin.model_copy(update={"socket": str(configuration.admin_socket)}),
        "ray": ray,
        "weights": settings.weights.model_copy(update={"dir": weights and str(weights)}),
        "node_pools": tuple(_pool(pool, configuration) for pool in settings.node_pools),
        "models": tuple(_model(model, configuration, everywhere) for model in settings.models),
    }
    return settings.model_copy(update=filled)


def _pool(pool: NodePool, configuration: Configuration) -> NodePool:
    source = source_of(pool, configuration.plugins[pool.name])
    return pool.model_copy(update={"notices": source})


def _model(model: Model, configuration: Configuration, everywhere: tuple[str, ...]) -> Model:
    scaling = model.scaling
    if scaling.min_replicas == 0 and scaling.scale_to_zero_after is None:
        scaling = scaling.model_copy(update={"scale_to_zero_after": _TO_ZERO})
    filled = {
        "source": _source(model, configuration),
        "pools": model.pools or everywhere,
        "scaling": scaling,
    }
    return model.model_copy(update=filled)


def _source(model: Model, configuration: Configuration) -> str:
    if model.source == DEMO:
        return DEMO
    source = configuration.model_source(model)
    return f"file:{source}" if isinstance(parse_source(model.source), FileSource) else source
