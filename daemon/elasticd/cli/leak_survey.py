"""Asks every configured provider for its machines, side by side, without the daemon; also for those
of names that the configuration has no more.

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
from elasticd.cli.leak_names import Asking, askings
from elasticd.cli.leak_past import Former
from elasticd.clock import Clock
from elasticd.provider import Instance, PoolContext, ProviderError
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.providers import PoolProvider
from elasticd.settings.configuration import Configuration

_PATIENCE = 120.0
"""Seconds for a list with all its repetitions."""


@dataclass(frozen=True, slots=True)
class Survey:
    """`listed` by the label of what was asked for, which for a configured pool is its name;
    `unknown`: why it has told nothing."""

    listed: Mapping[str, Sequence[Instance]]
    unknown: Mapping[str, str]


@dataclass(slots=True)
class OpenPools:
    """Providers by label; `refused`: why there is none. `asked`: what each was asked for."""

    asked: Sequence[Asking]
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
async def open_pools(
    config: Configuration, ledger_id: str, former: Sequence[Former]
) -> AsyncIterator[OpenPools]:
    """Makes the providers as the daemon would, and closes them; machines stay."""
    pools = OpenPools(askings(config, former))
    configs = pool_configs(config)
    async with contextlib.AsyncExitStack() as parts:
        for asking in pools.asked:
            state_dir = config.state_dir / "pools" / asking.name.pool
            try:
                # Where no daemon was there is nothing to read, and nothing is left behind.
                if not state_dir.is_dir():
                    state_dir = Path(parts.enter_context(tempfile.TemporaryDirectory()))
                provider = _make(asking, configs[asking.account], ledger_id, state_dir)
            except Exception as bad:  # a provider's constructor may break in any way
                pools.refused[asking.label] = f"cannot be opened: {bad}"
                continue
            parts.push_async_callback(provider.aclose)
            pools.providers[asking.label] = provider
        yield pools


def _make(asking: Asking, wanted: PoolConfig, ledger_id: str, state_dir: Path) -> PoolProvider:
    context = PoolContext(
        pool=asking.name.pool,
        cluster=asking.name.cluster,
        ledger_id=ledger_id,
        state_dir=state_dir,
        market=wanted.market,
    )
    plugged = wanted.plugin.create(context, wanted.options)
    return PoolProvider(asking.label, plugged, Clock(), wanted.limits)


async def _list(provider: PoolProvider) -> Sequence[Instance] | str:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await provider.instances()
    except TimeoutError:
        return f"no list within {_PATIENCE:g} s"
    except ProviderError as failed:
        return f"{type(failed).__name__}: {failed}"
