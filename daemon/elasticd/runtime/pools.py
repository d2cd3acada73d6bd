"""The pools that are open now: their providers, and the tasks that watch them.

A reload opens, replaces and closes pools while calls are under way. A replaced or closed provider
takes no new call and lives until the last one it was asked has its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from elasticd.core.specs import FleetSpec
from elasticd.core.specs import NodePool as PoolSpec
from elasticd.errors import UsageError
from elasticd.provider import PoolContext
from elasticd.runtime.config import Listening, PoolConfig
from elasticd.runtime.contained import one_line
from elasticd.runtime.observer import PoolWatch
from elasticd.runtime.performer import Identity
from elasticd.runtime.ports import Clock, Emit
from elasticd.runtime.providers import PoolProvider


class PoolRefused(UsageError):
    """A pool's provider cannot be made from what the configuration says."""


@dataclass(slots=True)
class _OpenPool:
    """`made_of`: what the provider was made of; a reload that leaves it alone leaves it open."""

    made_of: tuple[PoolContext, PoolConfig]
    provider: PoolProvider
    watches: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PoolChange:
    """What a reload does to the pools, with the new providers made and nothing applied yet."""

    opened: Mapping[str, _OpenPool]
    kept: frozenset[str]


class Pools:
    """Opens and closes pools. `run` watches those that are open, for ever."""

    def __init__(self, identity: Identity, state_dir: Path, clock: Clock, emit: Emit) -> None:
        self._identity = identity
        self._state_dir = state_dir
        self._clock = clock
        self._emit = emit
        self._open: dict[str, _OpenPool] = {}
        self._providers: dict[str, PoolProvider] = {}
        self._retiring: dict[asyncio.Task[None], PoolProvider] = {}
        self._watching: asyncio.TaskGroup | None = None

    @property
    def providers(self) -> Mapping[str, PoolProvider]:
        """The open pools by name: a view that follows every change."""
        return MappingProxyType(self._providers)

    def listening(self, pool: str) -> Listening:
        """Whom the pool's machines ask for notices; a reload holds for those that come after it."""
        present = self._open.get(pool)
        return Listening() if present is None else present.made_of[1].listening

    def prepare(self, fleet: FleetSpec, configs: Mapping[str, PoolConfig]) -> PoolChange:
        """Makes what is new or different. Raises `PoolRefused`, and then nothing has changed."""
        opened: dict[str, _OpenPool] = {}
        kept: set[str] = set()
        try:
            for spec in fleet.pools:
                made_of = (self._context(spec, configs[spec.name]), configs[spec.name])
                present = self._open.get(spec.name)
                if present is not None and present.made_of == made_of:
                    kept.add(spec.name)
                else:
                    opened[spec.name] = _OpenPool(made_of, self._make(*made_of))
        except PoolRefused:
            for name, pool in opened.items():
                self._retire(name, pool.provider)
            raise
        return PoolChange(opened, frozenset(kept))

    def apply(self, change: PoolChange) -> None:
        """Takes the new pools into use and lets go of the old ones. Never fails, never waits."""
        for name in [name for name in self._open if name not in change.kept]:
            self._close(name)
        for name, pool in change.opened.items():
            self._open[name] = pool
            self._providers[name] = pool.provider
            if self._watching is not None:
                self._watch(self._watching, name, pool)

    async def run(self) -> None:
        """Until it is cancelled. A watch never fails: what breaks is its own pool's trouble."""
        try:
            async with asyncio.TaskGroup() as watching:
                self._watching = watching
                for name, pool in self._open.items():
                    self._watch(watching, name, pool)
                await asyncio.Event().wait()  # also through a moment in which no pool is open
        finally:
            self._watching = None

    async def aclose(self) -> None:
        """Closes every provider, also those that still wait for an answer."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        open_ones = (*retiring.values(), *self._providers.values())
        await asyncio.gather(*(provider.aclose() for provider in open_ones))

    def _context(self, spec: PoolSpec, wanted: PoolConfig) -> PoolContext:
        return PoolContext(
            pool=spec.name,
            cluster=self._identity.cluster,
            ledger_id=self._identity.ledger_id,
            state_dir=self._state_dir / "pools" / spec.name,
            market=wanted.market,
            accelerators=spec.accelerators,
        )

    def _make(self, context: PoolContext, wanted: PoolConfig) -> PoolProvider:
        try:
            context.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            provider = wanted.plugin.create(context, wanted.options)
        except BaseException as bad:  # a provider's constructor may break in any way
            raise PoolRefused(f"pool {context.pool!r} cannot be opened: {one_line(bad)}") from bad
        return PoolProvider(context.pool, provider, self._clock, wanted.limits)

    def _watch(self, watching: asyncio.TaskGroup, name: str, pool: _OpenPool) -> None:
        _, wanted = pool.made_of
        watch = PoolWatch(pool.provider, wanted.watch_periods, self._clock, self._emit)
        pool.watches = [
            watching.create_task(part(), name=f"{what} of {name}")
            for what, part in watch.parts().items()
        ]

    def _close(self, name: str) -> None:
        pool = self._open.pop(name)
        del self._providers[name]
        for task in pool.watches:
            task.cancel()
        self._retire(name, pool.provider)

    def _retire(self, name: str, provider: PoolProvider) -> None:
        retiring = asyncio.create_task(provider.retire(), name=f"retire {name}")
        self._retiring[retiring] = provider
        retiring.add_done_callback(lambda task: self._retiring.pop(task, None))
