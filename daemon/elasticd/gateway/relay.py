"""One request on its way through one replica: bytes out, bytes in, nothing interpreted.

The only module that speaks HTTP to engines, and the one to replace for a faster relay. It drops
hop-by-hop headers, swaps the client's credentials for the engine's key, and turns every way a
connection can fail into one of a few exceptions. Leaving the exchange early closes the connection
at once, which is how an engine learns that nobody wants its tokens any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from elasticd.gateway import sse
from elasticd.gateway.call import Call
from elasticd.routing_table import Endpoint

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    )
)
_OURS = frozenset(("host", "authorization", "x-request-id", "expect", "content-encoding"))
"""Towards the engine: what we set ourselves, and what was undone when the body was read."""

_KEEPALIVE = 3.0
"""Seconds an idle connection is kept: below the 5 s after which uvicorn closes it, so that a
request is never sent into a connection that is just closing."""


class ReplicaFailed(Exception):
    """The replica did not answer, or not to the end."""


class ReplicaRefused(ReplicaFailed):
    """It never took the request."""


class ReplicaBusy(ReplicaRefused):
    """It answered that it cannot serve now (status 503): alive, and worth asking again later."""


class ReplicaLost(ReplicaFailed):
    """The connection broke after the request was sent."""


class ReplicaSilent(ReplicaFailed):
    """It sent nothing for longer than the idle limit."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and end-to-end headers of the engine's answer."""

    status: int
    headers: CIMultiDict[str]

    @property
    def events(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.headers.get("Content-Type", "").startswith(sse.MEDIA_TYPE)


class Exchange:
    """One request and its answer. Made by `Relay.exchange`, which also ends it."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, call: Call) -> None:
        self._session = session
        self._endpoint = endpoint
        self._call = call
        self._response: aiohttp.ClientResponse | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reading_since: float | None = None
        self._silent_for: float | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> Head:
        """Sends the request and waits for the head of the answer."""
        try:
            self._response = response = await self._session.request(
                self._call.method,
                URL(self._endpoint.url.rstrip("/") + self._call.target, encoded=True),
                data=self._call.body or None,
                headers=_request_headers(self._call, self._endpoint),
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as refused:
            raise ReplicaRefused(str(refused) or type(refused).__name__) from refused
        except (aiohttp.ClientError, OSError) as broken:
            raise ReplicaLost(str(broken) or type(broken).__name__) from broken
        return Head(response.status, _end_to_end(response.headers))

    async def read(self) -> bytes:
        """The next bytes as they come; empty at the end."""
        assert self._response is not None
        self._reading_since = self._loop.time()
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as broken:
            if self._silent_for is not None:
                raise ReplicaSilent(f"silent for {self._silent_for:g} s") from broken
            raise ReplicaLost(str(broken) or type(broken).__name__) from broken
        finally:
            self._reading_since = None

    def limit_silence(self, seconds: float) -> None:
        """From now on a `read` that waits longer than this ends in `ReplicaSilent`.

        One sleepy timer instead of one per token: it looks how long the current read has waited.
        """
        waited = 0.0 if self._reading_since is None else self._loop.time() - self._reading_since
        if waited >= seconds and self._response is not None:
            self._silent_for = seconds
            self._response.close()
            return
        self._idle_timer = self._loop.call_later(seconds - waited, self.limit_silence, seconds)

    def close(self) -> None:
        """Ends the exchange; an answer that is not complete takes its connection along."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._response is not None:
            self._response.close()


class Relay:
    """The connections to all replicas."""

    def __init__(self, connect_timeout: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEPALIVE, socket_factory=_watched_socket
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    @asynccontextmanager
    async def exchange(self, endpoint: Endpoint, call: Call) -> AsyncIterator[Exchange]:
        """One attempt at one replica; leaving it, for whatever reason, frees the connection."""
        exchange = Exchange(self._session, endpoint, call)
        try:
            yield exchange
        finally:
            exchange.close()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._session.close()


def _request_headers(call: Call, endpoint: Endpoint) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in _end_to_end(call.headers).items()
        if name.lower() not in _OURS
    )
    headers["X-Request-Id"] = call.engine_id
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    return headers


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Without the headers that speak of one connection only (RFC 9110, 7.6.1)."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if (low := name.lower()) not in _HOP_BY_HOP and low not in named
    )


def _watched_socket(address: tuple[int, int, int, str, object]) -> socket.socket:
    """A socket that notices within about 12 s that the other machine is gone without a word."""
    family, kind, protocol = address[:3]
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 6)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return made
