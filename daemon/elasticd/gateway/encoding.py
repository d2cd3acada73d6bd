"""Content codings: what a client accepts, and unpacking piece by piece.

Bodies pass packed as they are. They are unpacked only where they must be read (requests, event
streams) or where the other side could not read them.
"""

from __future__ import annotations

import zlib

UNPACKABLE = ("gzip", "deflate")
_ALIASES = {"x-gzip": "gzip", "identity": ""}
_EITHER = zlib.MAX_WBITS | 32
"""gzip or zlib, told apart by the first bytes."""


class BadPacking(ValueError):
    """The bytes are not what the coding's name says."""


def coding_of(header: str | None) -> str:
    """The coding a `Content-Encoding` header names; empty for none."""
    name = (header or "").strip().lower()
    return _ALIASES.get(name, name)


def accepts(header: str | None, coding: str) -> bool:
    """Whether `Accept-Encoding` allows the coding. A client that does not say reads plain only."""
    wanted: dict[str, bool] = {}
    for part in (header or "").split(","):
        name, _, parameter = part.partition(";")
        wanted[coding_of(name)] = _quality(parameter) > 0
    return wanted.get(coding, wanted.get("*", False))


def _quality(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


class Unpacker:
    """Unpacks gzip or deflate as it comes; several gzip members in a row are one body."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_EITHER)
        self._begun = False

    def feed(self, data: bytes, limit: int = 0) -> bytes:
        """What the data amounts to; with a `limit`, not much more than so many bytes of it."""
        out = bytearray()
        while data and not (limit and len(out) > limit):
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(_EITHER)
            room = limit + 1 - len(out) if limit else 0
            out += self._inflate_some(data, room)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
        return bytes(out)

    def end(self) -> None:
        """Raises `BadPacking` if the body ended in the middle."""
        if self._begun and not self._inflate.eof:
            raise BadPacking("it ends in the middle")

    def _inflate_some(self, data: bytes, room: int) -> bytes:
        try:
            out = self._inflate.decompress(data, room)
        except zlib.error as bad:
            if self._begun:
                raise BadPacking(str(bad)) from bad
            out = self._inflate_unframed(data, room)
        self._begun = True
        return out

    def _inflate_unframed(self, data: bytes, room: int) -> bytes:
        """What HTTP calls deflate is zlib; some senders leave its frame out."""
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return self._inflate.decompress(data, room)
        except zlib.error as bad:
            raise BadPacking(str(bad)) from bad


def unpack(data: bytes, limit: int) -> bytes:
    """A whole body. What is longer than the limit is cut soon after it."""
    unpacker = Unpacker()
    out = unpacker.feed(data, limit)
    if len(out) <= limit:
        unpacker.end()
    return out
