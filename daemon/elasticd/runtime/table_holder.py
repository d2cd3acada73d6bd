"""The routing table that holds now, and those who wait for the next one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from elasticd.routing_table import RoutingTable


class TableHolder:
    """One publisher, any number of waiters. `key_of` makes an engine's key: the core has none."""

    def __init__(self, key_of: Callable[[str, int], str]) -> None:
        self._key_of = key_of
        self._table: RoutingTable | None = None
        self._waking = asyncio.Event()
        self._closed = False

    @property
    def current(self) -> RoutingTable | None:
        """The last table published in this life of the controller, if any."""
        return self._table

    def publish(self, table: RoutingTable) -> None:
        """Replaces the table and wakes everyone who waits."""
        models = tuple(
            replace(
                model,
                endpoints=tuple(
                    replace(e, key=self._key_of(e.replica_id, e.incarnation))
                    for e in model.endpoints
                ),
            )
            for model in table.models
        )
        self._table = replace(table, models=models)
        waking, self._waking = self._waking, asyncio.Event()
        waking.set()

    def close(self) -> None:
        """Answers whoever waits, now and from now on: the controller is going."""
        self._closed = True
        self._waking.set()

    async def wait_for_other(self, epoch: int, version: int, wait: float) -> RoutingTable | None:
        """The table, once it is not the one named; `None` after `wait` seconds without one.

        Any difference counts, not only a greater number: after a state directory was renewed,
        epochs begin again and a gateway may hold one that looks newer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not self._closed and not self._differs(epoch, version):
                    await self._waking.wait()
        return self._table if self._differs(epoch, version) else None

    def _differs(self, epoch: int, version: int) -> bool:
        table = self._table
        return table is not None and (table.epoch, table.version) != (epoch, version)
