"""One client's connection to the admin API.

aiohttp's, with what it lacks: it can say since when it idles, tells when it is over, and refuses
requests whose framing or version we do not speak instead of guessing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.http_parser import RawRequestMessage


class Connection(web.RequestHandler):
    """`on_lost` is called once when it is over."""

    __slots__ = ("on_lost",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[Any], None] | None = None

    @property
    def idle_since(self) -> float | None:
        """Loop time since when it waits for a request; `None` while one is under way, or while the
        client still reads an answer."""
        if self._waiter is None or self._waiter.done() or self._messages:
            return None
        transport: Any = self.transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        return self._next_keepalive_close_time - self._keepalive_timeout

    def connection_lost(self, exc: BaseException | None) -> None:
        """Also tells who counts."""
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Refuses what we do not speak.

        Also tells a request whose body turns out to be malformed, which would wait for ever. The
        request is answered in the fault's place, and its connection ends with the answer.
        """
        super().data_received(data)
        if not self._messages:
            return
        for at, (message, payload) in enumerate(self._messages):
            if isinstance(message, web_protocol._ErrInfo):
                continue
            if why := _not_spoken(message):
                fault = web_protocol._ErrInfo(400, BadHttpMessage(why), why)
                self._messages[at] = fault, payload
        waiting = self._current_request
        if waiting is None or waiting.content.is_eof():
            return
        if isinstance(self._messages[-1][0], web_protocol._ErrInfo):
            self._messages.pop()
            waiting.content.set_exception(web.RequestPayloadError("malformed"))
            waiting.content.feed_eof()
            self.close()


def _not_spoken(message: RawRequestMessage) -> str:
    """Why the request is not taken; empty if it is."""
    if message.version not in (HttpVersion10, HttpVersion11):
        # An answer would repeat the version, and promise what we do not speak.
        return "its HTTP version is not spoken here, use HTTP/1.1"
    if message.chunked:
        codings = ",".join(message.headers.getall("Transfer-Encoding", ()))
        if codings.strip().lower() != "chunked":
            return "of transfer codings only a single `chunked` is supported"
    return ""
