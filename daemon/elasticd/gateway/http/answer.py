"""The bytes of one answer to a client: its head, its framing, and waiting while it reads slowly."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from multidict import CIMultiDict

from elasticd.gateway.http.chunks import chunk
from elasticd.gateway.http.head import head_bytes

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_WITHOUT_BODY = frozenset((204, 304))


class Flow(Protocol):
    """Where the bytes come from: it can be held up."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Line(Protocol):
    """The connection to the client, as far as an answer uses it."""

    @property
    def gone(self) -> bool: ...
    @property
    def keeps(self) -> bool: ...

    @property
    def write(self) -> Callable[[bytes], None]: ...
    async def drain(self) -> None: ...
    def feed_from(self, flow: Flow | None) -> None: ...
    def abort(self) -> None: ...


def answer_bytes(status: int, headers: CIMultiDict[str], body: bytes) -> bytes:
    """A whole answer, the last one of its connection."""
    headers["Content-Length"] = str(len(body))
    return _head_bytes(status, headers, "close") + body


def _head_bytes(status: int, headers: CIMultiDict[str], connection: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if "Date" not in headers:
        lines.append(f"Date: {_date(int(time.time()))}")
    if connection:
        lines.append(f"Connection: {connection}")
    return head_bytes(lines)


class Answer:
    """`modern`: the client speaks HTTP/1.1. `begun`: the head is on its way, or goes with the first
    piece. `complete`: all is.

    `kept`: the client was told that it may ask again on this connection.
    """

    __slots__ = (
        "_bare",
        "_chunked",
        "_flows",
        "_head_only",
        "_held",
        "_line",
        "_modern",
        "begun",
        "bytes_sent",
        "complete",
        "kept",
    )

    def __init__(self, line: Line, *, modern: bool, head_only: bool) -> None:
        self._line = line
        self._modern = modern
        self._head_only = head_only
        self._bare = head_only
        self._chunked = False
        self._flows = False
        self._held = b""
        self.bytes_sent = 0
        self.begun = False
        self.complete = False
        self.kept = False

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._line.gone

    def whole(self, status: int, headers: CIMultiDict[str], body: bytes) -> None:
        """All of it at once."""
        if status in _WITHOUT_BODY:
            body = b""
        else:
            headers["Content-Length"] = str(len(body))
        head = self._head(status, headers, keep=True)
        self._put(head if self._head_only else head + body)
        self.bytes_sent = len(body)
        self.complete = True

    def begin(self, status: int, headers: CIMultiDict[str]) -> None:
        """The head of an answer whose length is not known."""
        self._bare = self._head_only or status in _WITHOUT_BODY
        self._chunked = self._modern and not self._bare
        if self._modern and status not in _WITHOUT_BODY:
            headers["Transfer-Encoding"] = "chunked"
        self._held = self._head(status, headers, keep=self._chunked or self._bare)

    def write(self, data: bytes) -> None:
        """A piece of the body. Raises `ConnectionError`."""
        if self._flows and data:  # nearly always: this is done for each token
            self.bytes_sent += len(data)
            self._line.write(chunk(data))
        elif data and not self._bare:
            self.bytes_sent += len(data)
            if self._chunked:
                self._flows = True
                data = chunk(data)
            data, self._held = self._held + data, b""
            self._line.write(data)

    def remark(self, data: bytes) -> None:
        """The same for what is no part of the answer itself."""
        before = self.bytes_sent
        self.write(data)
        self.bytes_sent = before

    def end(self) -> None:
        """That was all."""
        last = self._held + (b"0\r\n\r\n" if self._chunked else b"")
        self._held = b""
        if last:
            self._put(last)
        self.complete = True

    def invite(self) -> None:
        """Tells a client that waits with its body to send it."""
        self._put(b"HTTP/1.1 100 Continue\r\n\r\n")

    def abort(self) -> None:
        """Cuts it off: a clean end would be a lie."""
        self._line.abort()

    async def drain(self) -> None:
        """Waits while the client reads slowly. Raises `ConnectionError`."""
        await self._line.drain()

    def feed_from(self, flow: Flow | None) -> None:
        """The source from now on: it is held up while the client reads slowly."""
        self._line.feed_from(flow)

    def _head(self, status: int, headers: CIMultiDict[str], *, keep: bool) -> bytes:
        self.begun = True
        self.kept = keep and self._line.keeps
        connection = "close" if not self.kept else "" if self._modern else "keep-alive"
        return _head_bytes(status, headers, connection)

    def _put(self, data: bytes) -> None:
        self._line.write(data)


@lru_cache(maxsize=1)
def _date(now: int) -> str:
    return formatdate(now, usegmt=True)
