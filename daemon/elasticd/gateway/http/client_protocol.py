"""One connection to a replica: a request's bytes out, the parts of its answer in.

Nothing is awaited here. What came with one read of the socket is given on in one piece, so a token
costs one call each of the parser, of its receiver and of the other side's transport.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, cast

import httptools
from multidict import CIMultiDict

from elasticd.gateway.http.chunks import whole_chunk
from elasticd.gateway.http.head import Address, answer_headers

_LONGEST_HEAD = 256 * 1024
"""Bytes of an answer's head at most: what is longer is no engine's."""

_WATCH = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 6),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)
"""A replica whose machine is gone without a word is noticed within about 12 s."""


class Receiver(Protocol):
    """Who gets an answer, part by part, its head without what speaks of one connection only. After
    `ended` or `lost` comes nothing more."""

    def head_came(self, status: int, headers: CIMultiDict[str]) -> None: ...
    def data_came(self, data: bytes) -> None: ...
    def ended(self) -> None: ...
    def lost(self, why: str) -> None: ...


class Keeper(Protocol):
    """Who has the connections that idle."""

    def put(self, connection: ReplicaConnection) -> None: ...
    def forget(self, connection: ReplicaConnection) -> None: ...


class ReplicaConnection(asyncio.Protocol):
    """One request at a time; in between it idles with its keeper.

    `used`: it has answered before, so its replica may be closing it just now.
    """

    __slots__ = (
        "_between",
        "_complete",
        "_head",
        "_head_size",
        "_keep_alive",
        "_keeper",
        "_last",
        "_pairs",
        "_parser",
        "_pieces",
        "_receiver",
        "_steady",
        "_transport",
        "_until_close",
        "_without_body",
        "address",
        "idle_since",
        "on_body",
        "used",
    )

    def __init__(self, address: Address, keeper: Keeper) -> None:
        self.address = address
        self.used = False
        self.idle_since = 0.0
        self._keeper = keeper
        self._receiver: Receiver | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._pairs: list[tuple[bytes, bytes]] = []
        self._begin(without_body=False)

    def _begin(self, *, without_body: bool) -> None:
        self._without_body = without_body
        self._head = False
        self._head_size = 0
        self._complete = False
        self._keep_alive = False
        self._last = 0
        self._until_close = False
        self._between = False
        self._steady = False

    # -- for who uses it -----------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether it takes no request any more."""
        return self._transport.is_closing()

    def ask(self, request: bytes, receiver: Receiver, *, without_body: bool = False) -> None:
        """Sends a whole request. `without_body`: the answer has none, whatever its head says."""
        self._begin(without_body=without_body)
        self._receiver = receiver
        self._transport.write(request)

    def pause(self) -> None:
        """Reads no more for a while: the engine is held back when the socket is full."""
        if not self.closing:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on."""
        if not self.closing:
            self._transport.resume_reading()

    def abandon(self) -> None:
        """Nobody wants the answer any more, and the replica hears of it at once."""
        self._receiver = None
        self._transport.abort()

    def close(self) -> None:
        """Ends an idle connection."""
        self._transport.close()

    # -- from the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watches over the replica's machine."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another class
        sock = transport.get_extra_info("socket")
        for level, name, value in _WATCH:
            if sock is not None and hasattr(socket, name):
                sock.setsockopt(level, getattr(socket, name), value)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of an answer that has no other, or its loss."""
        self._keeper.forget(self)
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if exc is None and self._until_close:
            receiver.ended()
        else:
            receiver.lost(str(exc) if exc is not None else "it closed the connection")

    def data_received(self, data: bytes) -> None:
        """Gives on what is in it."""
        receiver = self._receiver
        if receiver is None:
            self._transport.abort()  # bytes that nobody asked for
            return
        if self._steady and (piece := whole_chunk(data)):  # nearly always: done for each token
            receiver.data_came(piece)
            return
        fault = self._parse(data)
        # Behind a whole chunk, and not within the line that begins another one.
        self._steady = self._between and data.endswith(b"\r\n")
        pieces = self._pieces
        if self._complete:
            del pieces[self._last :]
        if pieces and self._receiver is not None:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            receiver.data_came(data)
        if self._complete:
            self._answered(reusable=not fault)
        elif fault:
            self._lose(fault)
        elif not self._head and self._head_size > _LONGEST_HEAD:
            self._lose("the head of its answer does not end")

    def _parse(self, data: bytes) -> str:
        """What is wrong with it, if anything is."""
        if not self._head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return "it switches protocols"
        except httptools.HttpParserError as bad:
            return f"its answer is not HTTP: {bad}"
        return ""

    def _answered(self, *, reusable: bool) -> None:
        receiver, self._receiver = self._receiver, None
        transport = self._transport
        keep = reusable and self._keep_alive and not transport.is_closing()
        if keep and not transport.get_write_buffer_size():  # it read the request to its end
            self.used = True
            self._keeper.put(self)
        else:
            transport.close()
        if receiver is not None:
            receiver.ended()

    def _lose(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        self._transport.abort()
        if receiver is not None:
            receiver.lost(why)

    # -- from the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Another answer behind the one that was asked for is none of ours."""
        if self._complete:
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of the head; those behind the body are dropped."""
        if not self._head:
            self._pairs.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole. Answers that only announce another one (1xx) are passed over."""
        pairs, self._pairs = self._pairs, []
        status = self._parser.get_status_code()
        if self._complete or (100 <= status < 200 and status != 101):
            return
        headers, framed = answer_headers(pairs)
        self._head, self._until_close = True, not framed
        if self._receiver is not None:
            self._receiver.head_came(status, headers)
        if self._without_body:
            self._complete, self._last = True, 0

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._between = False

    def on_chunk_complete(self) -> None:
        """All of it has come."""
        self._between = True

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was one that only announces."""
        if self._head and not self._complete:
            self._complete, self._last = True, len(self._pieces)
            self._keep_alive = self._parser.should_keep_alive()
