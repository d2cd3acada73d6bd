"""Asks every configured provider for its machines, side by side, without the daemon.

Each is called through the wrapper that the daemon uses, with its time limits; one that fails or
hangs is unknown and keeps none of the others waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.app import pool_configs
from elasticd.clock import Clock
from elasticd.provider import Instance, PoolContext, ProviderError
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.providers import PoolProvider
from elasticd.settings.configuration import Configuration

_PATIENCE = 120.0
"""Seconds for a list with all its repetitions."""


@dataclass(frozen=True, slots=True)
class Survey:
    """`listed` by pool; `unknown`: why a pool has told nothing."""

    listed: Mapping[str, Sequence[Instance]]
    unknown: Mapping[str, str]


@dataclass(slots=True)
class OpenPools:
    """Providers by pool; `refused`: why there is none."""

    providers: dict[str, PoolProvider] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    async def survey(self) -> Survey:
        """Every pool's machines. Never raises for what a provider does."""
        names = list(self.providers)
        answers = await asyncio.gather(*(_list(self.providers[name]) for name in names))
        listed: dict[str, Sequence[Instance]] = {}
        unknown = dict(self.refused)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, str):
                unknown[name] = answer
            else:
                listed[name] = answer
        return Survey(listed, unknown)


@contextlib.asynccontextmanager
async def open_pools(config: Configuration, ledger_id: str) -> AsyncIterator[OpenPools]:
    """Makes the providers as the daemon would, and closes them; machines stay."""
    pools = OpenPools()
    async with contextlib.AsyncExitStack() as parts:
        for name, wanted in pool_configs(config).items():
            state_dir = config.state_dir / "pools" / name
            try:
                # Where no daemon was there is nothing to read, and nothing is left behind.
                if not state_dir.is_dir():
                    state_dir = Path(parts.enter_context(tempfile.TemporaryDirectory()))
                provider = _make(config, name, wanted, ledger_id, state_dir)
            except Exception as bad:  # a provider's constructor may break in any way
                pools.refused[name] = f"cannot be opened: {bad}"
                continue
            parts.push_async_callback(provider.aclose)
            pools.providers[name] = provider
        yield pools


def _make(
    config: Configuration, name: str, wanted: PoolConfig, ledger_id: str, state_dir: Path
) -> PoolProvider:
    accelerators = {pool.name: pool.accelerators for pool in config.settings.node_pools}
    context = PoolContext(
        pool=name,
        cluster=config.settings.cluster,
        ledger_id=ledger_id,
        state_dir=state_dir,
        market=wanted.market,
        accelerators=accelerators[name],
    )
    return PoolProvider(name, wanted.plugin.create(context, wanted.options), Clock(), wanted.limits)


async def _list(provider: PoolProvider) -> Sequence[Instance] | str:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await provider.instances()
    except TimeoutError:
        return f"no list within {_PATIENCE:g} s"
    except ProviderError as failed:
        return f"{type(failed).__name__}: {failed}"
