"""The wishes in a configuration file, read once; `reread` makes the next ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from elasticd.core.specs import FleetSpec, ModelSpec
from elasticd.provider import Market
from elasticd.runtime.config import Listening, PoolConfig
from elasticd.runtime.hub_api import Hub
from elasticd.secret import SecretUnavailable
from elasticd.settings.configuration import Configuration
from elasticd.settings.day_start import DayStart
from elasticd.settings.fleet import hub_sources, secret_env, source_text, to_fleet
from elasticd.settings.load import Providers, load
from elasticd.settings.model import NodePool
from elasticd.settings.notices import NOBODY, source_of
from elasticd.settings.reload import Reload, compare
from elasticd.settings.sources import Resolved

_WEIGHTS_DIR = "ELASTICD_WEIGHTS_DIR"
"""Tells a node's fetcher where the weights lie; without it the node has a place of its own."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FileWishes:
    """Implements `Wishes`. `providers` as in `load`."""

    configuration: Configuration
    providers: Providers | None = None

    def fleet(self, resolved: Mapping[str, Resolved], problems: Mapping[str, str]) -> FleetSpec:
        """What the core is told; a source that cannot be resolved says why in its model."""
        fleet = to_fleet(self.configuration, resolved)
        why = {
            model.name: problems[source_text(model)]
            for model in self.configuration.settings.models
            if source_text(model) in problems
        }
        return replace(fleet, models=tuple(_explained(model, why) for model in fleet.models))

    @property
    def pools(self) -> Mapping[str, PoolConfig]:
        """The provider of each pool."""
        config = self.configuration
        return {
            pool.name: PoolConfig(
                plugin=config.plugins[pool.name],
                options=config.options[pool.name],
                market=Market(pool.market) if pool.market else None,
                listening=_listening(pool, config),
            )
            for pool in config.settings.node_pools
        }

    @property
    def sources(self) -> tuple[str, ...]:
        """What a hub must be asked about."""
        return tuple(str(source) for source in hub_sources(self.configuration))

    @property
    def day_starts(self) -> DayStart:
        """When the budget's day begins."""
        return self.configuration.settings.budget.day_starts

    def hub(self) -> Hub:
        """Where the hub is. Without its token it still answers for what is public."""
        try:
            token = self._token()
        except SecretUnavailable as missing:
            _log.warning("weights_token_unavailable", problem=str(missing))
            token = None
        return Hub(self.configuration.settings.weights.mirror, token)

    def fetch_env(self) -> tuple[tuple[str, str], ...]:
        """Mirror, token and directory for a node's fetcher. Raises `SecretUnavailable`."""
        weights = self.configuration.settings.weights
        found = {"HF_ENDPOINT": weights.mirror}
        token = self._token()
        if token:
            found["HF_TOKEN"] = token
        if weights.dir:
            found[_WEIGHTS_DIR] = str(self.configuration.weights_dir)
        return tuple(found.items())

    def secret_env(self, model: str) -> tuple[tuple[str, str], ...]:
        """What the fleet does not tell of its engines' environment. Raises `SecretUnavailable`."""
        return secret_env(self.configuration, model)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What holds and may hurt."""
        return tuple(f"{p.path}: {p.message}" for p in self.configuration.warnings)

    def reread(self) -> FileWishes:
        """The file as it is now, judged as `elasticd check` judges it, this host included."""
        return FileWishes(load(self.configuration.path, self.providers), self.providers)

    def compare(self, newer: FileWishes, machines: Mapping[str, int]) -> Reload:
        """What would change."""
        return compare(self.configuration, newer.configuration, machines)

    def _token(self) -> str | None:
        token = self.configuration.settings.weights.token
        return None if token is None else token.read().get_secret_value()


def _listening(pool: NodePool, config: Configuration) -> Listening:
    source = source_of(pool, config.plugins[pool.name])
    return Listening() if source == NOBODY else Listening(source, pool.metadata_url or "")


def _explained(model: ModelSpec, why: Mapping[str, str]) -> ModelSpec:
    if not model.unresolved or model.name not in why:
        return model
    return replace(model, unresolved=why[model.name])
