"""A client's request as the gateway handles it: its head, its body as it comes, its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from multidict import CIMultiDict

from elasticd.gateway.http.answer import Answer

SLOWEST = 1024
"""Bytes a second: the least that keeps a body coming once its patience has passed."""


class TooLong(Exception):
    """The body passes its limit."""


class Malformed(Exception):
    """The body is not framed as its head says."""


class TooSlow(Exception):
    """It came too slowly: `came` bytes in `seconds`."""

    def __init__(self, seconds: float, came: int) -> None:
        super().__init__(f"{came} bytes in {seconds:.0f} s")
        self.seconds = seconds
        self.came = came


class Body:
    """`whole`: all of it has come."""

    __slots__ = ("_last", "_limit", "_malformed", "_pieces", "_size", "_waiter", "whole")

    def __init__(self) -> None:
        self._pieces: list[bytes] | None = []
        self._size = 0
        self._limit: float = float("inf")
        self._last = 0.0
        self._malformed = False
        self._waiter: asyncio.Future[None] | None = None
        self.whole = False

    @property
    def held(self) -> int:
        """Bytes that wait to be read."""
        return self._size if self._pieces is not None else 0

    def at_once(self, limit: int) -> bytes | None:
        """The whole of a body within the limit that has come; else `None`."""
        pieces = self._pieces
        if not self.whole or self._malformed or self._size > limit or pieces is None:
            return None
        self._pieces = None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self, limit: int, patience: float) -> bytes:
        """All of it. Raises `TooLong`, `TooSlow`, `Malformed`.

        It may take `patience` seconds, and one more for each `SLOWEST` bytes that have come; and it
        may never be silent for `patience` seconds.
        """
        self._limit = limit
        if not self._settled:
            await self._settle(patience)
        pieces, self._pieces = self._pieces or [], None
        if self._size > limit:
            raise TooLong
        if self._malformed:
            raise Malformed
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def arrived(self, data: bytes) -> None:
        """A piece of it; dropped where nobody will read it."""
        if self._pieces is None:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._waiter is not None:
            self._last = self._waiter.get_loop().time()
            if self._size > self._limit:
                self._wake()

    def complete(self) -> None:
        """That was all."""
        self.whole = True
        self._wake()

    def is_malformed(self) -> None:
        """What comes cannot be read any more."""
        self._malformed = True
        self._wake()

    def drop(self) -> None:
        """Nobody will read it."""
        self._pieces = None

    @property
    def _settled(self) -> bool:
        return self.whole or self._malformed or self._size > self._limit

    async def _settle(self, patience: float) -> None:
        loop = asyncio.get_running_loop()
        began = self._last = loop.time()
        while not self._settled:
            due = min(began + patience + self._size / SLOWEST, self._last + patience)
            now = loop.time()
            if now >= due:
                self._pieces = None
                raise TooSlow(now - began, self._size)
            self._waiter = loop.create_future()
            timer = loop.call_at(due, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(slots=True)
class Request:
    """`target`: path and query as the client wrote them; `path`: without the query.

    `modern`: HTTP/1.1, not 1.0. `keep_alive`: the client may ask again on this connection.
    """

    method: str
    target: str
    path: str
    headers: CIMultiDict[str]
    modern: bool
    keep_alive: bool
    answer: Answer
    body: Body = field(default_factory=Body)

    @property
    def content_type(self) -> str:
        """In lower case and without parameters; empty where there is none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def length(self) -> int:
        """Bytes of the body, as far as the head tells."""
        return int(self.headers.get("Content-Length", 0))
