"""The first replica's events on their way to the client: all of it is done for each token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.failures import ReplicaLost
from elasticd.gateway.sse import EventFramer


class Keeps(Protocol):
    """Who keeps the events, and knows what of them the client is shown."""

    def keep(self, data: bytes) -> bytes: ...


class Passage:
    """Gives whole events to `send`, as `seam` shows them; without one as they are."""

    __slots__ = ("_framer", "_seam", "_send")

    def __init__(self, seam: Keeps | None, send: Callable[[bytes], None]) -> None:
        self._seam = seam
        self._send = send
        self._framer: EventFramer | None = None
        """While it has a part of an event."""

    def take(self, data: bytes) -> bool:
        """A piece of the stream. Raises `ReplicaLost` where it says that it failed."""
        if self._framer is not None or not data.endswith(b"\n\n"):
            data = self._framed(data)
            if not data:
                return False
        if self._seam is not None:  # nearly always; and nearly every piece is one whole event
            try:
                data = self._seam.keep(data)
            except Broken as broken:
                if broken.good:
                    self._send(broken.good)
                raise ReplicaLost(str(broken)) from broken
        self._send(data)
        return False

    def _framed(self, data: bytes) -> bytes:
        framer = self._framer or EventFramer()
        whole = framer.feed(data)
        self._framer = framer if framer.rest else None
        return whole

    def flush(self) -> None:
        """The stream has ended by itself: what is left of it."""
        if self._framer is not None:
            self._send(self._framer.flush())
