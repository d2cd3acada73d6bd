"""A configuration while it is being judged: what can be said of it so far."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.provider import ProviderPlugin
from elasticd.settings.document import Place
from elasticd.settings.model import Model, NodePool, Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a rule says of a place. `because`: other places that it depends on.

    It is told only if all these places are as the operator wrote them.
    """

    place: Place
    message: str
    because: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """Settings with stand-ins for what is wrong. `plugins`, `options`: by pool name, if known.

    `pool_names` are the names as written, also those that cannot be used: a model that means one
    of them makes no second mistake. `written`: every place that stands in the file itself.
    """

    path: Path
    settings: Settings
    plugins: Mapping[str, ProviderPlugin]
    options: Mapping[str, Any]
    pool_names: tuple[str, ...]
    written: Container[Place] = ()

    def pools_of(self, model: Model) -> tuple[NodePool, ...]:
        """Where a model may run."""
        pools = self.settings.node_pools
        return tuple(p for p in pools if p.name in model.pools or not model.pools)

    def pool_places(self, model: Model, *keys: str) -> tuple[Place, ...]:
        """Where these keys of a model's pools stand."""
        meant = {pool.name for pool in self.pools_of(model)}
        return tuple(
            ("node_pools", index, key)
            for index, pool in enumerate(self.settings.node_pools)
            for key in keys
            if pool.name in meant
        )
