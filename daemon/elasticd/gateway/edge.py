"""The HTTP server's edge: what is wrong before there is a request to speak of.

aiohttp answers that in plain text; here it has the shape and the request id of every other error.
Only the kind of a fault is told and logged, never the bytes: they can hold a key.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import structlog
from aiohttp import web, web_protocol
from aiohttp.http_exceptions import BadHttpMethod, InvalidURLError, LineTooLong

from elasticd.gateway.call import new_request_id
from elasticd.gateway.errors import ApiError, headers_too_large, internal, no_http
from elasticd.gateway.paths import needs_replica
from elasticd.ops.connection import Connection

_log = structlog.get_logger("elasticd.gateway")

_WATCH = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)
"""A client whose machine vanished without a word is noticed within about 30 s: it holds a slot."""


_TURNS = 3
"""Of the event loop: a request is out of sight for one while its task begins."""


class EdgeServer(web.Server):
    """An HTTP server whose connections are `EdgeConnection`s."""

    def __call__(self) -> EdgeConnection:
        return EdgeConnection(self, loop=self._loop, **self._kwargs)


class EdgeConnection(Connection):
    """One client's connection."""

    __slots__ = ()

    def connection_made(self, transport: Any) -> None:
        """Watches over the client's machine."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        for level, name, value in _WATCH:
            if sock is not None and hasattr(socket, name):
                sock.setsockopt(level, getattr(socket, name), value)

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio keeps it open for True
        """The client sends no more: it has left, or has closed its half of the connection only.

        Nothing tells the two apart, and to generate for nobody holds a replica's slot. So it counts
        as gone, unless what it asked is answered from here, at once.
        """
        asyncio.get_running_loop().call_soon(self._half_closed, _TURNS)
        return True

    def _half_closed(self, turns: int) -> None:
        if self.transport is None:
            return
        asked = list(self._asked())
        if any(asked):
            self.transport.close()
        elif asked or self._request_in_progress:
            self.close()  # after this answer
        elif self._waiter is None and turns:  # a request is between the queue and its task
            asyncio.get_running_loop().call_soon(self._half_closed, turns - 1)
        else:
            self.transport.close()

    def _asked(self) -> Iterator[bool]:
        """Of each request that is not answered yet, whether it takes more than a moment."""
        request = self._current_request
        if request is not None:
            needs = needs_replica(request.method, request.rel_url.raw_path)
            yield needs or not request.content.is_eof()
        for message, payload in self._messages:
            needs = not isinstance(message, web_protocol._ErrInfo) and needs_replica(
                message.method, message.url.raw_path
            )
            yield needs or not payload.is_eof()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to a fault that nobody caught."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, there is no room for an error")
        if status >= 500:
            error = internal()
            _log.error("request met a fault", exc_info=exc)
        else:
            error = _what_is_wrong(exc, message, self.max_line_size)
        request_id = new_request_id()
        _log.info("request failed", request_id=request_id, code=error.code, error=error.message)
        headers = {**error.headers, "X-Request-Id": request_id, "Server": "elasticd"}
        answer = web.Response(status=error.status, headers=headers, body=error.body())
        answer.force_close()
        return answer


def _what_is_wrong(exc: BaseException | None, message: str | None, limit: int) -> ApiError:
    first_line = (message or "").partition("\n")[0].partition(":")[0].strip()
    if isinstance(exc, LineTooLong) or first_line.startswith("Too many headers"):
        return headers_too_large(limit)
    if isinstance(exc, InvalidURLError):
        return no_http("its target cannot be read")
    if first_line.startswith("Pause on"):
        return no_http("HTTP/2 is not spoken here, use HTTP/1.1")
    if isinstance(exc, BadHttpMethod):
        return no_http("it does not begin with a method; is it https, or another protocol?")
    return no_http(first_line[:100] or "it cannot be read")
