"""The provider contract over `cloud`: asynchronous, cancellable, moody as `cloud.json` says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, ParamSpec, TypeVar

from elasticd.provider import (
    Instance,
    LaunchRequest,
    NoticeKind,
    NoticeWithdrawn,
    Offering,
    PoolContext,
    PreemptionNotice,
    Rejected,
    Unavailable,
)
from elasticd_providers.local import process
from elasticd_providers.local.catalog import Catalog, host_gpus
from elasticd_providers.local.cloud import Cloud
from elasticd_providers.local.options import LocalOptions
from elasticd_providers.local.switches import Switches, read_switches
from elasticd_providers.local.threads import Closed, Threads

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 4
"""The pool's file lock lets one do anything at a time; the others wait for it."""
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
    """Implements `Provider`, `NoticeSource`, `Reclaimable` and `BootLog`.

    All state lies in files, so any number of these objects (one after the other, or in several
    processes) see the same machines. Work already handed to a thread is finished even when the
    call is cancelled; it leaves a whole machine or none.
    """

    def __init__(self, context: PoolContext, catalog: Catalog) -> None:
        self._pool = context.pool
        self._state_dir = context.state_dir
        self._cloud = Cloud(context, catalog)
        self._threads = Threads(_THREADS, f"local {context.pool}")
        self._closed = asyncio.Event()

    async def offerings(self) -> Sequence[Offering]:
        switches = await self._mood("before")
        found = await self._blocking(self._cloud.offerings, switches)
        await self._mood("after")
        return found

    async def launch(self, request: LaunchRequest) -> Instance:
        switches = await self._mood("before")
        switches.raise_launch_error()
        machine = await self._blocking(self._cloud.launch, request, switches)
        await self._mood("after")
        return machine

    async def terminate(self, instance_id: str) -> None:
        await self._mood("before")
        await self._blocking(self._cloud.terminate, instance_id)
        await self._mood("after")

    async def instances(self) -> Sequence[Instance]:
        await self._mood("before")
        found = await self._blocking(self._cloud.instances)
        await self._mood("after")
        return found

    async def boot_log(self, instance_id: str) -> str:
        """The end of what it printed; also of the last few machines that are no more."""
        await self._mood("before")
        printed = await self._blocking(self._cloud.boot_log, instance_id)
        await self._mood("after")
        return printed

    async def aclose(self) -> None:
        """Ends the notices, and every call that hangs; machines stay."""
        self._closed.set()
        self._threads.close()

    async def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]:
        """Every notice once per iterator, those given before it began included."""
        told: dict[str, str] = {}
        while not self._closed.is_set():
            try:
                given = await self._blocking(self._cloud.notices)
            except Closed:
                return
            for change in _changes(told, given):
                yield change
            await self._pause(_NOTICE_POLL)

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """Takes the machine as the market would; with a notice, its own init keeps the deadline."""
        if notice is None:
            await self._blocking(self._cloud.terminate, instance_id)
        else:
            await self._blocking(self._cloud.reclaim, instance_id, notice)

    async def withdraw(self, instance_id: str) -> None:
        """Takes a notice back: the machine stays."""
        await self._blocking(self._cloud.withdraw, instance_id)

    async def hang(self, instance_id: str, hung: bool = True) -> None:
        """Freezes the machine (SIGSTOP to everything in it), or lets it go on."""
        await self._blocking(self._cloud.hang, instance_id, hung)

    async def _blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread of ours; what the host refuses leaves as the contract has it."""
        try:
            return await self._threads.run(call, *args, **kwargs)
        except (OSError, ValueError, LookupError, TypeError) as refused:
            told = f"{type(refused).__name__}: {refused}"
            raise Unavailable(f"local: pool {self._pool}: {self._state_dir}: {told}") from refused

    async def _mood(self, moment: Literal["before", "after"]) -> Switches:
        """The switches, once they no longer say that calls hang here."""
        while True:
            switches = await self._blocking(read_switches, self._state_dir)
            if not switches.hangs(moment):
                return switches
            await self._pause(_POLL)

    async def _pause(self, longest: float) -> None:
        """Until it is time to look again, or until closed."""
        try:
            async with asyncio.timeout(longest):
                await self._closed.wait()
        except TimeoutError:
            return


def _changes(
    told: dict[str, str], given: dict[str, tuple[str, float] | None]
) -> list[PreemptionNotice | NoticeWithdrawn]:
    """What is new since `told` (notice id by machine), which is brought up to date."""
    changes: list[PreemptionNotice | NoticeWithdrawn] = []
    for instance_id, notice in given.items():
        before = told.pop(instance_id, None)
        if notice is not None:
            notice_id, seconds_left = notice
            told[instance_id] = notice_id
            if notice_id != before:
                changes.append(
                    PreemptionNotice(notice_id, instance_id, NoticeKind.INTERRUPTION, seconds_left)
                )
        elif before is not None:
            changes.append(NoticeWithdrawn(before, instance_id))
    return changes
