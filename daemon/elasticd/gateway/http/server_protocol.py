"""One client's connection: its requests are handled in their order, each by one task.

What is no request is answered here, in its place in that order, and ends the connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, cast

from elasticd.gateway.errors import ApiError
from elasticd.gateway.http.answer import Flow
from elasticd.gateway.http.reader import RequestReader
from elasticd.gateway.http.request import Request
from elasticd.gateway.http.site import PATIENCE, Site

_WATCH = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)
"""A client whose machine vanished without a word is noticed within about 30 s: it holds a slot."""


def watch_over_clients(listening: socket.socket) -> None:
    """Over the machines of all whose connections are accepted here: they inherit it (Linux)."""
    for level, name, value in _WATCH:
        if hasattr(socket, name):
            listening.setsockopt(level, getattr(socket, name), value)


_MOST_WAITING = 64
_MOST_WAITING_BYTES = 256 * 1024
"""Requests that a client may send before its first is answered, and bytes of their bodies."""

_LINGER = 10.0
"""Seconds for which a client that still sends is listened to after its last answer: to close at
once would take the answer from it."""


def _to_nobody(data: bytes) -> NoReturn:
    raise ConnectionResetError("the client has left")


class ClientConnection(asyncio.Protocol):
    """`on_lost` is called once when it is over. `gone`: the client has left. `write` sends bytes;
    it raises `ConnectionResetError` then."""

    __slots__ = (
        "_current",
        "_flow",
        "_idle_from",
        "_loop",
        "_made",
        "_reader",
        "_reading",
        "_site",
        "_task",
        "_timer",
        "_transport",
        "_waiting",
        "_writable",
        "gone",
        "on_lost",
        "write",
    )

    def __init__(self, site: Site) -> None:
        self.on_lost: Callable[[Any], None] | None = None
        self.gone = False
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._made = False
        self._reader = RequestReader(self, site.max_header)
        self._current: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[Request | ApiError] = deque()
        self._reading = True
        self._writable: asyncio.Future[None] | None = None
        self._flow: Flow | None = None
        self._idle_from = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # -- for who counts connections ------------------------------------------------------------

    @property
    def idle_since(self) -> float | None:
        """Loop time since when it waits for a request; `None` while one is under way, or while the
        client still reads an answer."""
        if self._current is not None or not self._made or self._transport.is_closing():
            return None
        return None if self._transport.get_write_buffer_size() else self._idle_from

    def force_close(self) -> None:
        """Ends it, after what is written."""
        if self._made:
            self._transport.close()

    # -- for answers ---------------------------------------------------------------------------

    @property
    def keeps(self) -> bool:
        """Whether the client may ask again after the current answer."""
        request = self._current
        asks_on = request is not None and request.keep_alive and request.body.whole
        return asks_on and not self._site.stopping

    async def drain(self) -> None:
        """Waits while the client reads slowly."""
        if self.gone:
            raise ConnectionResetError("the client has left")
        if self._writable is not None:
            await self._writable

    def feed_from(self, flow: Flow | None) -> None:
        """From where the bytes come that are written."""
        self._flow = flow
        if flow is not None and self._writable is not None:
            flow.pause()

    def abort(self) -> None:
        """Ends it at once."""
        self._transport.abort()

    # -- from the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another class
        self._made = True
        self.write: Callable[[bytes], None] = self._transport.write
        self._site.connections.add(self)
        self._timer = self._loop.call_later(PATIENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more for whom to work."""
        self.gone = True
        self.write = _to_nobody
        self._waiting.clear()
        self._site.left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self.on_lost is not None:
            self.on_lost(self)

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._writable = self._loop.create_future()
        if self._flow is not None:
            self._flow.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if self._flow is not None:
            self._flow.resume()

    def data_received(self, data: bytes) -> None:
        """Requests, or parts of them."""
        if self._current is None and not self._reader.begun:
            self._idle_from = self._loop.time()
        self._reader.feed(data)

    def eof_received(self) -> bool:
        """The client sends no more: it has left, or has closed its half of the connection only.

        Nothing tells the two apart, and to generate for nobody holds a replica's slot. So it counts
        as gone, unless what it asked is answered from here, at once.
        """
        asked = [r for r in (self._current, *self._waiting) if isinstance(r, Request)]
        if not asked or any(not r.body.whole or self._site.lasts(r) for r in asked):
            self._transport.close()
        else:
            asked[-1].keep_alive = False
        return True

    # -- from the reader -----------------------------------------------------------------------

    def asked(self, request: Request) -> None:
        """It is its turn, or has to wait for it."""
        if self._current is None:
            self._start(request)
        else:
            self._waiting.append(request)
            self._hold_up()

    def piece_came(self) -> None:
        """There may be too much by now."""
        if self._waiting:
            self._hold_up()

    def asked_whole(self, request: Request) -> None:
        """A request that has been answered before it was whole was the last."""
        if request.answer.complete:
            self._transport.close()

    def unreadable(self, fault: ApiError) -> None:
        """It is answered when all before it are."""
        if self._current is None:
            self._tell(fault)
        else:
            self._waiting.append(fault)

    # -- one after the other -------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        self._current = request
        self._task = self._loop.create_task(self._serve(request))

    async def _serve(self, request: Request) -> None:
        try:
            await self._site.handle(request)
        except (ConnectionError, asyncio.CancelledError):
            self._transport.abort()
        finally:
            self._current = self._task = None
            self._idle_from = self._loop.time()
            request.body.drop()
            if not self.gone and not self._transport.is_closing():
                self._after(request)

    def _after(self, request: Request) -> None:
        if not request.answer.complete:
            self._transport.abort()
        elif not (request.answer.kept and request.keep_alive) or self._site.stopping:
            self._leave(still_sending=not request.body.whole)
        elif self._waiting:
            following = self._waiting.popleft()
            if isinstance(following, Request):
                self._start(following)
            else:
                self._tell(following)
            self._hold_up()

    def _tell(self, fault: ApiError) -> None:
        self._transport.write(self._site.refusal(fault))
        self._leave(still_sending=True)

    def _leave(self, *, still_sending: bool) -> None:
        """Closes the connection, a little later if the client still sends."""
        self._waiting.clear()
        if not still_sending:
            self._transport.close()
            return
        self._hold_up()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._ends_in(_LINGER, self._transport.close)

    def _hold_up(self) -> None:
        """Reads no more while too much waits behind the current request."""
        held = [r.body.held for r in self._waiting if isinstance(r, Request)]
        reading = len(held) <= _MOST_WAITING and sum(held) <= _MOST_WAITING_BYTES
        if reading is not self._reading and not self._transport.is_closing():
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _look(self) -> None:
        """Ends a connection on which nothing is asked, or only half a question."""
        left = PATIENCE
        if self._current is None:
            left += self._idle_from - self._loop.time()
        if left <= 0:
            self._transport.close()
        else:
            self._ends_in(left, self._look)

    def _ends_in(self, seconds: float, how: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, how)
