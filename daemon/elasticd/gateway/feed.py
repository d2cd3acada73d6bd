"""The gateway's line to the controller: tables come in, by long poll over the admin socket.

Fail static: while the controller is away, or says what is no table, the gateway goes on with its
last one, from memory or, after a restart, from disk. Only the controller's own word replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import structlog

from elasticd.gateway.table_store import save_table
from elasticd.routing_table import RoutingTable, on_other_clock, sent_at, table_from_json
from elasticd.weights.foreign import read_json

_log = structlog.get_logger("elasticd.gateway")

_WAIT = 25
"""Seconds the controller may hold a poll."""

_PAUSES = (0.1, 0.25, 0.5, 1.0)
"""Seconds before the next try after one, two, … failures in a row."""


class ControllerLink:
    """HTTP to the controller over its unix socket; logs once when it goes and when it is back."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._session = aiohttp.ClientSession(
            base_url="http://controller",
            connector=aiohttp.UnixConnector(path=str(socket)),
            timeout=aiohttp.ClientTimeout(total=_WAIT + 10, sock_connect=5),
        )
        self._reachable: bool | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """For requests with relative addresses."""
        return self._session

    def note(self, error: str | None) -> None:
        """The outcome of a request; `None`: it was answered."""
        reachable = error is None
        if reachable is self._reachable:
            return
        if error is not None:
            _log.warning("controller line down", socket=str(self._socket), error=error)
        elif self._reachable is not None:
            _log.info("controller line up", socket=str(self._socket))
        self._reachable = reachable

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._session.close()


class TableFeed:
    """Follows the controller's table and keeps each one on disk."""

    def __init__(
        self,
        link: ControllerLink,
        table_file: Path,
        known: RoutingTable | None,
        apply: Callable[[RoutingTable], None],
        now: Callable[[], float],
    ) -> None:
        self._link = link
        self._table_file = table_file
        self._known = known
        self._apply = apply
        self._now = now
        self._refused = ""

    async def run(self) -> None:
        """Never returns."""
        failures = 0
        while True:
            try:
                told = await self._poll()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._link.note(str(error) or type(error).__name__)
            else:
                self._link.note(None)
                if told is None or await self._is_taken(told):
                    failures = 0
                    continue
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
            failures += 1

    async def _poll(self) -> bytes | None:
        """What the controller says; `None`: the table that is known still holds."""
        known = self._known
        params = {
            "epoch": str(known.epoch if known else 0),
            "version": str(known.version if known else 0),
            "wait": str(_WAIT),
        }
        async with self._link.session.get("/internal/v1/table", params=params) as answer:
            if answer.status == 204:
                return None
            answer.raise_for_status()
            return await answer.read()

    async def _is_taken(self, told: bytes) -> bool:
        """Logs once what is wrong with a table."""
        try:
            document = read_json(told)
            table, at = table_from_json(document), sent_at(document)
        except ValueError as bad:
            if (refused := str(bad)) != self._refused:
                _log.error("table refused, the one before stays", error=refused)
            self._refused = refused
            return False
        self._refused = ""
        if at is not None:
            table = on_other_clock(table, self._now() - at)
        known = self._known
        if known is None or (table.epoch, table.version) != (known.epoch, known.version):
            await self._take(table)
        return True

    async def _take(self, table: RoutingTable) -> None:
        """In force first: a slow or full disk delays no request."""
        self._known = table
        self._apply(table)
        _log.info(
            "routing table",
            epoch=table.epoch,
            version=table.version,
            endpoints={m.model: len(m.endpoints) for m in table.models},
        )
        saving = asyncio.ensure_future(asyncio.to_thread(save_table, self._table_file, table))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait({saving})  # the thread cannot be stopped: let it end before we do
            raise
        except OSError as full:
            _log.error("table not kept", path=str(self._table_file), error=str(full))
