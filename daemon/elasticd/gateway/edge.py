"""The HTTP server's edge: what is wrong before there is a request to speak of.

aiohttp answers that in plain text; here it has the shape and the request id of every other error.
Only the kind of a fault is told and logged, never the bytes: they can hold a key.
"""

from __future__ import annotations

import socket
from typing import Any

import structlog
from aiohttp import web, web_protocol
from aiohttp.http_exceptions import BadHttpMethod, InvalidURLError, LineTooLong

from elasticd.gateway.call import new_request_id
from elasticd.gateway.errors import ApiError, headers_too_large, internal, no_http

_log = structlog.get_logger("elasticd.gateway")

_WATCH = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)
"""A client whose machine vanished without a word is noticed within about 30 s: it holds a slot."""


class EdgeServer(web.Server):
    """An HTTP server whose connections are `EdgeConnection`s."""

    def __call__(self) -> web.RequestHandler:
        return EdgeConnection(self, loop=self._loop, **self._kwargs)


class EdgeConnection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ()

    def connection_made(self, transport: Any) -> None:
        """Watches over the client's machine."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        for level, name, value in _WATCH:
            if sock is not None and hasattr(socket, name):
                sock.setsockopt(level, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        """Also tells a request whose body turns out to be malformed, which would wait for ever.

        The request is answered in the fault's place, and its connection ends with the answer.
        """
        super().data_received(data)
        waiting = self._current_request
        if waiting is None or not self._messages or waiting.content.is_eof():
            return
        if isinstance(self._messages[-1][0], web_protocol._ErrInfo):
            self._messages.pop()
            waiting.content.set_exception(web.RequestPayloadError("malformed"))
            waiting.content.feed_eof()
            self.close()

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
