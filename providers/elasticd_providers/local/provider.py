"""The provider contract over `cloud`: asynchronous, cancellable, moody as `cloud.json` says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from elasticd.provider import (
    Instance,
    LaunchRequest,
    NoticeKind,
    NoticeWithdrawn,
    Offering,
    PoolContext,
    PreemptionNotice,
    Rejected,
)
from elasticd_providers.local import process
from elasticd_providers.local.catalog import Catalog, host_gpus
from elasticd_providers.local.cloud import Cloud
from elasticd_providers.local.options import LocalOptions
from elasticd_providers.local.switches import Switches, read_switches

_POLL = 0.1
"""Seconds between looks at `cloud.json` while it says `hang`."""

_NOTICE_POLL = 0.5
"""Seconds between looks at the control files: it goes on for ever, so it must cost nothing."""


def create(context: PoolContext, options: LocalOptions) -> LocalProvider:
    """The provider of one pool. `Rejected` where this host cannot play the cloud."""
    missing = process.missing_tools()
    if missing:
        raise Rejected(
            f"pool {context.pool}: the local provider needs {' and '.join(missing)} (Linux, "
            "package util-linux) and does not find them"
        )
    return LocalProvider(context, Catalog(context, options, host_gpus(os.environ)))


class LocalProvider:
    """Implements `Provider`, `NoticeSource` and `Reclaimable`.

    All state lies in files, so any number of these objects (one after the other, or in several
    processes) see the same machines. Work already handed to a thread is finished even when the
    call is cancelled; it leaves a whole machine or none.
    """

    def __init__(self, context: PoolContext, catalog: Catalog) -> None:
        self._state_dir = context.state_dir
        self._cloud = Cloud(context, catalog)
        self._closed = asyncio.Event()

    async def offerings(self) -> Sequence[Offering]:
        switches = await self._mood("before")
        found = await asyncio.to_thread(self._cloud.offerings, switches)
        await self._mood("after")
        return found

    async def launch(self, request: LaunchRequest) -> Instance:
        switches = await self._mood("before")
        switches.raise_launch_error()
        machine = await asyncio.to_thread(self._cloud.launch, request, switches)
        await self._mood("after")
        return machine

    async def terminate(self, instance_id: str) -> None:
        await self._mood("before")
        await asyncio.to_thread(self._cloud.terminate, instance_id)
        await self._mood("after")

    async def instances(self) -> Sequence[Instance]:
        await self._mood("before")
        found = await asyncio.to_thread(self._cloud.instances)
        await self._mood("after")
        return found

    async def aclose(self) -> None:
        """Ends the notices; machines stay."""
        self._closed.set()

    async def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]:
        """Every notice once per iterator, those given before it began included."""
        told: dict[str, str] = {}
        while not self._closed.is_set():
            for instance_id, notice in (await asyncio.to_thread(self._cloud.notices)).items():
                before = told.pop(instance_id, None)
                if notice is not None:
                    notice_id, seconds_left = notice
                    told[instance_id] = notice_id
                    if notice_id != before:
                        yield PreemptionNotice(
                            notice_id, instance_id, NoticeKind.INTERRUPTION, seconds_left
                        )
                elif before is not None:
                    yield NoticeWithdrawn(before, instance_id)
            await self._pause()

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """Takes the machine as the market would; with a notice, its own init keeps the deadline."""
        if notice is None:
            await asyncio.to_thread(self._cloud.terminate, instance_id)
        else:
            await asyncio.to_thread(self._cloud.reclaim, instance_id, notice)

    async def withdraw(self, instance_id: str) -> None:
        """Takes a notice back: the machine stays."""
        await asyncio.to_thread(self._cloud.withdraw, instance_id)

    async def hang(self, instance_id: str, hung: bool = True) -> None:
        """Freezes the machine (SIGSTOP to everything in it), or lets it go on."""
        await asyncio.to_thread(self._cloud.hang, instance_id, hung)

    async def _mood(self, moment: Literal["before", "after"]) -> Switches:
        """The switches, once they no longer say that calls hang here."""
        while True:
            switches = await asyncio.to_thread(read_switches, self._state_dir)
            if not switches.hangs(moment):
                return switches
            await asyncio.sleep(_POLL)

    async def _pause(self) -> None:
        """Until the next look at the control files, or until closed."""
        try:
            async with asyncio.timeout(_NOTICE_POLL):
                await self._closed.wait()
        except TimeoutError:
            return
