"""What all connections of one listener share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from elasticd.gateway.errors import ApiError
from elasticd.gateway.http.request import Request

PATIENCE = 75.0
"""Seconds that a connection may idle, and that the head of a request may take."""

_FLUSH = 1.0
"""Seconds that clients get to read their last bytes when the site closes."""


class Open(Protocol):
    """A connection that is there."""

    def force_close(self) -> None: ...
    def abort(self) -> None: ...


class Site:
    """`handle` answers a request. `refusal` gives the whole answer to what is no request.

    `lasts`: whether to answer a request takes more than a moment. `max_header`: bytes of a line.
    `stopping`: connections end with the answer under way.
    """

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[None]],
        refusal: Callable[[ApiError], bytes],
        lasts: Callable[[Request], bool],
        max_header: int,
    ) -> None:
        self.handle = handle
        self.refusal = refusal
        self.lasts = lasts
        self.max_header = max_header
        self.stopping = False
        self.connections: set[Open] = set()
        self._empty = asyncio.Event()

    def left(self, connection: Open) -> None:
        """It is over."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def aclose(self) -> None:
        """Ends all connections."""
        self.stopping = True
        self._empty.clear()
        for connection in list(self.connections):
            connection.force_close()
        if self.connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH):
                    await self._empty.wait()
        for connection in list(self.connections):
            connection.abort()
