"""A replica's address that breaks: bytes pass until so many events of a stream have."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self

_EVENT = b"\n\n"


class CutProxy:
    """In front of a port of this machine. Resets every stream that has had `after` events."""

    def __init__(self, port: int, after: int) -> None:
        self._upstream = port
        self._after = after
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        up = asyncio.create_task(_pour(reader, engine_writer))
        try:
            await self._down(engine_reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            engine_writer.close()
            writer.close()
            self._tasks.discard(task)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        events, is_stream = 0, False
        while data := await reader.read(64 * 1024):
            is_stream = is_stream or b"text/event-stream" in data
            if is_stream:
                at = -1
                while events < self._after and (at := data.find(_EVENT, at + 1)) >= 0:
                    events += 1
                if events >= self._after:
                    writer.write(data[: at + len(_EVENT)])
                    await writer.drain()
                    await asyncio.sleep(0.01)  # a reset overtakes what the kernel still holds
                    self.cuts += 1
                    _reset(writer)
                    return
            writer.write(data)
            await writer.drain()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(64 * 1024):
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
