"""The controller of the sweep: the real one, and it dies where it is told to.

    ELASTICD_SWEEP='{"marks": FILE, "at": {KIND: N}, "number": N}' \\
        python -m tests.sweep.controller -c FILE

Built as `elasticd controller` builds it, with four things of its own: `Ledger.commit` and the fake
provider's calls count boundaries (`boundaries`), the core's clock runs `FACTOR` times as fast, and
pools are listed more often. Nothing in `elasticd` knows of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import elasticd.clock
from elasticd import app
from elasticd.core.decide import Core
from elasticd.core.fleet import Row
from elasticd.ops import folded
from elasticd.ops.telemetry import set_up_logs
from elasticd.provider import (
    Instance,
    LaunchRequest,
    NoticeWithdrawn,
    Offering,
    PoolContext,
    PreemptionNotice,
    ProviderPlugin,
)
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.cluster_watch import PollTimes
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.controller import run_controller
from elasticd.runtime.file_wishes import FileWishes
from elasticd.runtime.ledger import JournalEntry, Ledger
from elasticd.runtime.observer import WatchPeriods
from elasticd.settings.load import Configuration, Providers, load
from elasticd_providers.fake import PLUGIN, FakeOptions, FakeProvider, create_fake
from elasticd_providers.fake.client import HttpWire, Reply, Wire
from elasticd_providers.fake.routes import call_of
from elasticd_providers.fake.site import DEFAULT_TOKEN
from tests.sweep.boundaries import Boundaries, Contents, around

FACTOR = 15.0
"""Seconds of the core in a second: its limits keep their proportions, and a life takes seconds.

What the operating system, the wire and the fake cloud do, they do in real time.
"""

PERIODS = WatchPeriods(instances=0.3, offerings=1.5, notices_retry=0.2, longest=2.0)
LIMITS = CallLimits(rate=50.0, burst=50)
POLL = PollTimes(wait=0.3, retry=0.1, spacing=0.05)

_CALLS = {
    "find": "look-up",
    "create": "launch",
    "terminate": "terminate",
    "list": "instances",
    "offers": "offerings",
    "boot_log": "boot log",
}
"""By the vendor's word. What is not here changes nothing, at the cloud or in the ledger."""


class CountingWire:
    """A wire with a boundary before each call is sent, and one where its answer is still unseen."""

    def __init__(self, wire: Wire, boundaries: Boundaries) -> None:
        self._wire = wire
        self._cross = boundaries.cross

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        asked = call_of(method, path, query, body, "")
        assert asked is not None, f"the vendor has no {method} {path}"
        call = _CALLS.get(asked.operation)
        if call is None:
            return await self._wire.send(method, path, query, body)
        around(self._cross, call, "not sent")
        try:
            return await self._wire.send(method, path, query, body)
        finally:
            around(self._cross, call, "done, answer not seen")

    async def aclose(self) -> None:
        await self._wire.aclose()


class CountingProvider:
    """A fake provider with a boundary after each call that has its answer or its error."""

    def __init__(self, provider: FakeProvider, boundaries: Boundaries) -> None:
        self._provider = provider
        self._cross = boundaries.cross

    async def offerings(self) -> Sequence[Offering]:
        try:
            return await self._provider.offerings()
        finally:
            around(self._cross, "offerings", "answered")

    async def launch(self, request: LaunchRequest) -> Instance:
        try:
            return await self._provider.launch(request)
        finally:
            around(self._cross, "launch", "answered")

    async def terminate(self, instance_id: str) -> None:
        try:
            await self._provider.terminate(instance_id)
        finally:
            around(self._cross, "terminate", "answered")

    async def instances(self) -> Sequence[Instance]:
        try:
            return await self._provider.instances()
        finally:
            around(self._cross, "instances", "answered")

    async def boot_log(self, instance_id: str) -> str:
        try:
            return await self._provider.boot_log(instance_id)
        finally:
            around(self._cross, "boot log", "answered")

    def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]:
        return self._provider.notices()

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        await self._provider.reclaim(instance_id, notice)

    async def aclose(self) -> None:
        await self._provider.aclose()


@dataclass(frozen=True, slots=True)
class HurriedWishes(FileWishes):
    """The configuration's wishes, with pools that are asked more often than real ones bear."""

    @property
    def pools(self) -> Mapping[str, PoolConfig]:
        told = FileWishes(self.configuration, self.providers).pools
        return {name: replace(pool, periods=PERIODS, limits=LIMITS) for name, pool in told.items()}

    def reread(self) -> HurriedWishes:
        return HurriedWishes(load(self.configuration.path, self.providers), self.providers)


def counting_provider(boundaries: Boundaries) -> ProviderPlugin:
    """The fake provider's plugin, whose calls are counted."""

    def create(context: PoolContext, options: FakeOptions) -> CountingProvider:
        wire = HttpWire(options.url, DEFAULT_TOKEN, options.timeout)
        fake = create_fake(context, options, wire=CountingWire(wire, boundaries))
        return CountingProvider(fake, boundaries)

    return replace(PLUGIN, create=create)


def count_commits(boundaries: Boundaries) -> None:
    """From now on each commit has a boundary before and one after it."""
    commit = Ledger.commit
    contents = Contents()

    async def counted(
        ledger: Ledger, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]
    ) -> None:
        held = contents.of(rows, entries)
        boundaries.cross(f"before commit: {what}" for what in held)
        await commit(ledger, at, rows, entries)
        boundaries.cross(f"after commit: {what}" for what in held)

    opened = Ledger.open.__func__

    async def open_and_learn(cls: type[Ledger], *args: Any, **more: Any) -> Ledger:
        ledger: Ledger = await opened(cls, *args, **more)
        contents.learn(ledger.restored.rows)
        return ledger

    Ledger.commit = counted
    Ledger.open = classmethod(open_and_learn)


def hurry() -> None:
    """Makes the controller's own clock run faster: its monotonic part."""
    began = time.monotonic()
    elasticd.clock.time = SimpleNamespace(
        time=time.time, monotonic=lambda: began + FACTOR * (time.monotonic() - began)
    )


async def run(config: Configuration, providers: Providers) -> None:
    """As `elasticd.app.controller`."""
    usual = app.controller_config(config)
    wishes = HurriedWishes(config, providers)
    await run_controller(replace(usual, wishes=wishes, poll=POLL, admin_listen=None), Core)


def main(argv: Sequence[str] | None = None) -> None:
    """Until it is stopped, or dies."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.controller")
    parser.add_argument("-c", dest="config", type=Path, required=True)
    path = parser.parse_args(argv).config
    boundaries = Boundaries.from_env()
    plugin = counting_provider(boundaries)
    providers: Providers = {"fake": lambda: plugin}
    config = load(path, providers)
    set_up_logs("controller")
    hurry()
    count_commits(boundaries)
    folded.run(lambda: run(config, providers))


if __name__ == "__main__":
    main()
