"""Server-sent events, seen only as far as the relay must: where one event ends.

Bytes are never changed. Only whole events are passed on, so that a stream which breaks in the
middle of one never leaves half an event with the client: what follows can start cleanly.
"""

from __future__ import annotations

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Content-Type": f"{MEDIA_TYPE}; charset=utf-8", "Cache-Control": "no-cache"}
COMMENT = b": waiting for a replica\n\n"

_LIMIT = 1024 * 1024
"""An "event" longer than this (bytes) is passed on in pieces: the engine does not speak SSE."""


def event(data: bytes) -> bytes:
    """One event with one line of data."""
    return b"data: " + data + b"\n\n"


class EventFramer:
    """Cuts a byte stream after the last whole event; keeps the `rest` for the next call."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """All whole events so far that have not been given yet; empty if there is none."""
        if not self.rest and data.endswith(b"\n\n"):
            return data
        whole = self.rest + data
        cut = max(_end_of_last(whole, b"\n\n"), _end_of_last(whole, b"\r\n\r\n"))
        if len(whole) - cut > _LIMIT:
            cut = len(whole)
        self.rest = whole[cut:]
        return whole[:cut]

    def flush(self) -> bytes:
        """What is left when the stream has ended by itself."""
        rest, self.rest = self.rest, b""
        return rest


def _end_of_last(data: bytes, separator: bytes) -> int:
    at = data.rfind(separator)
    return 0 if at < 0 else at + len(separator)
