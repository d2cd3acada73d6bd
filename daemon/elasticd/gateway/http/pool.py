"""The connections to all replicas: kept for a moment after each answer, for the next request.

Last in, first out, so that those which are not needed age and go.
"""

from __future__ import annotations

import asyncio
import errno
import ssl

from elasticd.gateway.failures import OutOfResources, ReplicaRefused
from elasticd.gateway.http.client_protocol import ReplicaConnection
from elasticd.gateway.http.head import Address

KEPT = 3.0
"""Seconds an idle connection is kept: below the 5 s after which uvicorn closes it, so that a
request is never sent into a connection that is just closing."""

_OURS_ALONE = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)
"""What can go wrong on our side of a connection, whoever is on the other."""


class Pool:
    """`patience`: seconds a replica has to accept a connection. `loop`: that of its connections."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.loop = asyncio.get_running_loop()
        self._idle: dict[Address, list[ReplicaConnection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def kept(self, address: Address) -> ReplicaConnection | None:
        """A connection that idles, for use."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if not idle:
                del self._idle[address]
            if connection.closing:
                continue
            if self.loop.time() - connection.idle_since < KEPT:
                return connection
            connection.close()
        return None

    async def connect(self, address: Address) -> ReplicaConnection:
        """A new connection. Raises `ReplicaRefused`, or `OutOfResources`."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._connect(address)
        except TimeoutError as late:
            text = f"it did not accept a connection within {self._patience:g} s"
            raise ReplicaRefused(text) from late
        except OSError as refused:
            if refused.errno in _OURS_ALONE:
                raise OutOfResources(str(refused)) from refused
            raise ReplicaRefused(str(refused) or type(refused).__name__) from refused

    def put(self, connection: ReplicaConnection) -> None:
        """It has answered and may be used again."""
        if self._closed:
            connection.close()
            return
        connection.idle_since = self.loop.time()
        self._idle.setdefault(connection.address, []).append(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(KEPT, self._close_old)

    def forget(self, connection: ReplicaConnection) -> None:
        """It is closed."""
        idle = self._idle.get(connection.address)
        if idle is not None and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.address]

    def close(self) -> None:
        """Closes what idles; what is in use is closed when it is done."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    async def _connect(self, address: Address) -> ReplicaConnection:
        if address.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        _, connection = await self.loop.create_connection(
            lambda: ReplicaConnection(address, self),
            address.host,
            address.port,
            ssl=self._tls if address.tls else None,
        )
        return connection

    def _close_old(self) -> None:
        """Looks at the oldest of each replica first: they stand in front."""
        now = self.loop.time()
        self._sweep = None
        for address, idle in list(self._idle.items()):
            old = [c for c in idle if now - c.idle_since >= KEPT]
            del idle[: len(old)]
            if not idle:
                del self._idle[address]
            for connection in old:
                connection.close()
        if self._idle:
            oldest = min(idle[0].idle_since for idle in self._idle.values())
            self._sweep = self.loop.call_later(max(0.05, oldest + KEPT - now), self._close_old)
