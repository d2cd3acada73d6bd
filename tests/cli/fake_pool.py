"""A provider for commands that ask providers themselves: a list of machines that a test changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel, ConfigDict

from elasticd.provider import (
    Instance,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    Market,
    Offering,
    PoolContext,
    ProviderPlugin,
)

PRICE = 500_000


@dataclass(slots=True)
class FakePool:
    """What the provider of one pool has. `broken`: what a list raises; `on_terminate` may change
    anything before the answer; a machine needs `asks` terminate calls to be gone."""

    machines: dict[str, Instance] = field(default_factory=dict)
    broken: Exception | None = None
    hangs: bool = False
    asks: int = 2
    terminated: list[str] = field(default_factory=list)
    on_list: Callable[[], object] | None = None
    on_terminate: Callable[[], object] | None = None
    closed: int = 0

    def add(
        self,
        instance_id: str,
        node_id: str | None = None,
        ledger_id: str | None = None,
        *,
        pool: str = "here",
        launched_at: float | None = None,
        price: int | None = PRICE,
    ) -> None:
        """One machine more."""
        offering = None
        if price is not None:
            offering = Offering(pool, "z-1", "a10.large", "A10G", 1, Market.SPOT, price)
        self.machines[instance_id] = Instance(
            instance_id,
            node_id,
            ledger_id,
            InstanceState.RUNNING,
            offering,
            launched_at=launched_at,
        )

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def launch(self, request: LaunchRequest) -> Instance:
        raise AssertionError("a command that looks must not launch")

    async def instances(self) -> Sequence[Instance]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken is not None:
            raise self.broken
        listed = tuple(self.machines.values())
        if self.on_list is not None:
            self.on_list()
        return listed

    async def terminate(self, instance_id: str) -> None:
        self.terminated.append(instance_id)
        if self.on_terminate is not None:
            self.on_terminate()
        if self.terminated.count(instance_id) >= self.asks:
            self.machines.pop(instance_id, None)
            raise InstanceNotFound(instance_id)

    async def aclose(self) -> None:
        self.closed += 1


class NoOptions(BaseModel):
    """No keys of its own."""

    model_config = ConfigDict(extra="forbid")


def install(monkeypatch: pytest.MonkeyPatch, pools: dict[str, FakePool]) -> None:
    """Makes `provider: fake` mean these, by the pool's name; that of another cluster is named
    `CLUSTER/POOL`."""

    def create(context: PoolContext, _options: object) -> FakePool:
        other = f"{context.cluster}/{context.pool}"
        return pools[other] if other in pools else pools[context.pool]

    plugin = ProviderPlugin(NoOptions, create)
    monkeypatch.setattr(
        "elasticd.settings.load.installed_providers", lambda: {"fake": lambda: plugin}
    )
