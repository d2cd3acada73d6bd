"""Accepting connections, never more of them than there are descriptors for.

A process that runs out of descriptors can neither accept nor do its work for those it has
accepted. So a door has its number: when it is reached, the connections that have idled longest are
closed for new ones; where all are busy, new ones wait in the system's backlog.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

import structlog

from elasticd.ops.folded import Folded

_log = structlog.get_logger("elasticd")

_AT_ONCE = 100
"""Connections taken in a row; then those that are open have their turn."""

_YOUNG = 1.0
"""Seconds for which a connection counts as about to ask."""

_LOOK = 0.25
"""Seconds between two looks for connections that idle by now."""

_PAUSE = 1.0
"""Seconds to leave the system alone that has no descriptors."""

_NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Guest(Protocol):
    """A connection: an `asyncio.Protocol` that can say since when it idles, and when it is over."""

    on_lost: Callable[[Any], None] | None

    @property
    def idle_since(self) -> float | None: ...
    def force_close(self) -> None: ...


class Door:
    """Listens on bound sockets, which it closes at the end, for at most `most` at once."""

    def __init__(
        self, name: str, sockets: Sequence[socket.socket], make: Callable[[], Guest], most: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._make = make
        self._most = most
        self._inside: set[Guest] = set()
        self._coming: set[asyncio.Task[object]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._closed = False
        self._full = Folded("connections at their limit", listener=name, limit=most)
        self._no_room = Folded("no descriptors left to accept connections", listener=name)

    @property
    def inside(self) -> int:
        """How many connections there are."""
        return len(self._inside)

    def open(self, backlog: int) -> None:
        """Begins to accept; so many more may wait."""
        for sock in self._sockets:
            sock.setblocking(False)
            sock.listen(backlog)
            self._loop.add_reader(sock, self._accept, sock)

    def close(self) -> None:
        """Accepts no more. Connections that are open go on."""
        if self._closed:
            return
        self._closed = True
        if self._paused is not None:
            self._paused.cancel()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._full.close()
        self._no_room.close()

    def _accept(self, sock: socket.socket) -> None:
        if len(self._inside) >= self._most:  # and somebody knocks
            self._full.note(idle_ones_closed=self._close_idle())
            self._pause(_LOOK)
            return
        for _ in range(min(_AT_ONCE, self._most - len(self._inside))):
            try:
                guest, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failed:
                if failed.errno not in _NO_ROOM:
                    raise
                self._no_room.note(error=str(failed), connections=len(self._inside))
                self._pause(_PAUSE)
                return
            self._let_in(guest)

    def _let_in(self, guest: socket.socket) -> None:
        guest.setblocking(False)
        connection = self._make()
        connection.on_lost = self._lost
        self._inside.add(connection)
        entering = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: cast(asyncio.Protocol, connection), guest)
        )
        self._coming.add(entering)
        entering.add_done_callback(partial(self._entered, connection, guest))

    def _entered(
        self, connection: Guest, guest: socket.socket, entering: asyncio.Task[object]
    ) -> None:
        self._coming.discard(entering)
        if entering.cancelled() or entering.exception() is not None:
            guest.close()
            self._lost(connection)
            if not entering.cancelled():
                _log.warning("connection not taken", error=str(entering.exception()))

    def _lost(self, connection: Guest) -> None:
        self._inside.discard(connection)
        if self._paused is not None and len(self._inside) == self._most - 1:
            self._loop.call_soon(self._go_on)  # its descriptor is free then

    def _close_idle(self) -> int:
        """Closes some of those that have idled longest; returns how many."""
        now = self._loop.time()
        idle = [
            (since, connection)
            for connection in self._inside
            if (since := connection.idle_since) is not None and now - since >= _YOUNG
        ]
        oldest = heapq.nsmallest(max(1, self._most // 64), idle, key=lambda one: one[0])
        for _, connection in oldest:
            connection.force_close()
        return len(oldest)

    def _pause(self, seconds: float) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock)
        if self._paused is not None:
            self._paused.cancel()
        self._paused = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._paused is None or self._closed:
            return
        self._paused.cancel()
        self._paused = None
        for sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)
