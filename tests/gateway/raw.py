"""A client that writes exactly the bytes it is given, for what no client library would send."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE = 10.0


@dataclass
class Answer:
    """One answer, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, body: Any, *headers: str, path: str = "/v1/chat/completions") -> None:
        await self.send(request(body, *headers, path=path))

    async def until(self, separator: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(separator)

    async def answer(self) -> Answer:
        """Everything up to the end of the connection, as one answer."""
        async with asyncio.timeout(PATIENCE):
            return parsed(await self.reader.read())

    def reset(self) -> None:
        """Leaves with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def request(body: Any, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A POST with this JSON body and these header lines."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def parsed(data: bytes) -> Answer:
    head, found, body = data.partition(b"\r\n\r\n")
    assert found, f"no answer: {data[:200]!r}"
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Answer(int(first.split(" ")[1]), headers, body)


def _chunks(body: bytes) -> Iterable[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        body = rest[length + 2 :]
        if not length:
            assert not body, "bytes after the last chunk"
            return
    raise AssertionError("the last chunk is missing")
