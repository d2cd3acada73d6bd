"""Requests out of a client's bytes as they come: pipelined, cut anywhere, or no requests at all."""

from __future__ import annotations

from typing import NoReturn, Protocol

import httptools

from elasticd.gateway.errors import ApiError, headers_too_large, no_http
from elasticd.gateway.http.answer import Answer, Line
from elasticd.gateway.http.faults import not_taken, what_is_wrong
from elasticd.gateway.http.head import headers_of, target_of
from elasticd.gateway.http.request import Request

_MOST_HEADERS = 128
_LONGEST_HEAD = 8
"""A whole head, in lengths of its longest line; and what may come beside a body's own bytes."""


class Asked(Line, Protocol):
    """Who gets the requests."""

    def asked(self, request: Request) -> None:
        """Its head has come."""

    def piece_came(self) -> None:
        """A piece of a body has come."""

    def asked_whole(self, request: Request) -> None:
        """All of it has come, or as much as can be read."""

    def unreadable(self, fault: ApiError) -> None:
        """What came last is no request; nothing comes after it."""


class RequestReader:
    """`longest`: bytes of a line. `incoming`: the request whose body is coming. `deaf`: nothing
    more is read. `begun`: a part of a head has come."""

    __slots__ = (
        "_barren",
        "_fault",
        "_for",
        "_head_size",
        "_longest",
        "_pairs",
        "_parser",
        "_resuming",
        "_url",
        "deaf",
        "incoming",
    )

    def __init__(self, asked: Asked, longest: int) -> None:
        self._for = asked
        self._longest = longest
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._barren = 0
        self._resuming = False
        self._fault: ApiError | None = None
        self.deaf = False
        self.incoming: Request | None = None

    @property
    def begun(self) -> bool:
        """Whether a part of a head has come."""
        return self._head_size > 0

    def feed(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.deaf:
            return
        if self.incoming is None:
            self._head_size += len(data)
        else:
            self._barren += len(data)
        self._parse(data)
        most = _LONGEST_HEAD * self._longest
        if self.deaf:
            return
        if self.incoming is None and self._head_size > most:
            self._refuse(headers_too_large(self._longest))
        elif self.incoming is not None and self._barren > most:
            self._refuse(no_http("there is more around its body than in it"))

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on(data[upgrade.args[0] :])
        except httptools.HttpParserError as bad:
            if not self.deaf:  # else it is what came behind the last request
                self._refuse(self._fault or what_is_wrong(bad))

    def _refuse(self, fault: ApiError) -> None:
        self.deaf = True
        request, self.incoming = self.incoming, None
        if request is None:
            self._for.unreadable(fault)
            return
        request.keep_alive = False
        request.body.is_malformed()
        self._for.asked_whole(request)

    def _stop(self, fault: ApiError) -> NoReturn:
        """Ends the parsing from within a callback."""
        self._fault = fault
        raise ValueError(fault.message)

    def _go_on(self, rest: bytes) -> None:
        """The request wishes for another protocol. We go on in this one, as if it had not."""
        request = self.incoming
        if request is None:
            return
        if request.method == "CONNECT":
            self._complete(request)
            return
        framing = ("Content-Length", "Transfer-Encoding")
        lines = [f"{n}: {request.headers[n]}\r\n" for n in framing if n in request.headers]
        self._parser = httptools.HttpRequestParser(self)
        self._resuming = True
        self._parse(f"POST / HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
        self._resuming = False
        self._parse(rest)

    # -- from the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._pairs = []

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url
        if len(self._url) > self._longest:
            self._stop(headers_too_large(self._longest))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of its head; those behind its body are dropped."""
        if self.incoming is not None:
            return
        self._pairs.append((name, value))
        if len(name) + len(value) > self._longest or len(self._pairs) > _MOST_HEADERS:
            self._stop(headers_too_large(self._longest))

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        if self._resuming:
            return
        parser = self._parser
        headers, version = headers_of(self._pairs), parser.get_http_version()
        if (fault := not_taken(version, headers)) is not None:
            self._stop(fault)
        try:
            target, path = target_of(self._url)
        except ValueError:
            self._stop(no_http("its target cannot be read"))
        method, modern = parser.get_method().decode(), version == "1.1"
        keep = parser.should_keep_alive() and method != "CONNECT"
        answer = Answer(self._for, modern=modern, head_only=method == "HEAD")
        self.incoming = request = Request(method, target, path, headers, modern, keep, answer)
        self._head_size = self._barren = 0
        self._for.asked(request)

    def on_body(self, data: bytes) -> None:
        """A piece of its body."""
        if self.incoming is not None:
            self._barren = 0
            self.incoming.body.arrived(data)
            self._for.piece_came()

    def on_message_complete(self) -> None:
        """It is whole."""
        request = self.incoming
        if request is not None and (self._resuming or not self._parser.should_upgrade()):
            self._complete(request)

    def _complete(self, request: Request) -> None:
        self.incoming = None
        self.deaf = self.deaf or not request.keep_alive
        request.body.complete()
        self._for.asked_whole(request)
