"""The keys of a pool that its provider knows, and what the provider says of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elasticd.nearest import choice
from elasticd.provider import ProviderPlugin
from elasticd.settings.document import Place, Problem
from elasticd.settings.keys import Keys, keys_of
from elasticd.settings.messages import problems_of
from elasticd.settings.model import NodePool

Found = tuple[dict[str, ProviderPlugin], dict[str, Any], list[Problem]]


class PoolOptions:
    """Asks each provider about its own keys; imports only those that a pool uses."""

    def __init__(self, known: Mapping[str, Callable[[], ProviderPlugin]]) -> None:
        self._known = known
        self._loaded: dict[str, ProviderPlugin | str] = {}

    def keys_of(self, provider: Any) -> Keys | None:
        """A provider's keys; `None` if there is no such provider."""
        plugin = self._plugin(provider) if isinstance(provider, str) else ""
        return None if isinstance(plugin, str) else keys_of(plugin.options)

    def check(self, data: Any, base: Path) -> Found:
        """Plugins and options by pool name, and what is wrong with either."""
        plugins: dict[str, ProviderPlugin] = {}
        options: dict[str, Any] = {}
        problems: list[Problem] = []
        for index, pool in _raw_pools(data):
            place: Place = ("node_pools", index)
            if not isinstance(provider := pool.get("provider"), str):
                continue  # told by the pool's own check
            plugin = self._plugin(provider)
            if isinstance(plugin, str):
                problems.append(Problem((*place, "provider"), plugin))
                continue
            own = {key: value for key, value in pool.items() if key not in NodePool.model_fields}
            try:
                checked = plugin.options.model_validate(own, context={"base": base})
            except ValidationError as bad:
                problems += problems_of(bad, own, place)
                continue
            plugins[str(pool.get("name"))] = plugin
            options[str(pool.get("name"))] = checked
        return plugins, options, problems

    @staticmethod
    def without_own_keys(data: Any) -> Any:
        """The file without the keys that only a provider can judge."""
        kept = {
            index: {key: value for key, value in pool.items() if key in NodePool.model_fields}
            for index, pool in _raw_pools(data)
        }
        if not kept:
            return data
        pools = [kept.get(index, pool) for index, pool in enumerate(data["node_pools"])]
        return {**data, "node_pools": pools}

    def _plugin(self, provider: str) -> ProviderPlugin | str:
        """The plugin, or why there is none."""
        if provider not in self._loaded:
            self._loaded[provider] = self._load(provider)
        return self._loaded[provider]

    def _load(self, provider: str) -> ProviderPlugin | str:
        if provider not in self._known:
            pip = Path(sys.executable).with_name("pip")
            return (
                f"unknown provider {provider!r}; {choice(provider, sorted(self._known))}; one from "
                f"elsewhere must be installed in this environment ({pip} install …)"
            )
        try:
            return self._known[provider]()
        except (ImportError, AttributeError) as bad:
            return f"provider {provider!r} cannot be loaded ({bad}); is its extra installed?"


def _raw_pools(data: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    pools = data.get("node_pools") if isinstance(data, dict) else None
    for index, pool in enumerate(pools if isinstance(pools, list) else ()):
        if isinstance(pool, dict):
            yield index, pool
