"""One request on its way through one replica: bytes out, bytes in, nothing interpreted.

The only module that speaks HTTP to engines, and the one to replace for a faster relay. It drops
hop-by-hop headers, swaps the client's credentials for the engine's key, and turns every way a
connection can fail into one of a few exceptions. A packed answer stays packed, unless its client
could not read it or it is an event stream, of which we must see where events end. Leaving the
exchange early closes the connection at once, which is how an engine learns that nobody wants its
tokens any more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from elasticd.gateway.call import Call
from elasticd.gateway.encoding import UNPACKABLE, BadPacking, Unpacker, accepts, coding_of
from elasticd.gateway.failures import (
    Head,
    OutOfResources,
    ReplicaLost,
    ReplicaRefused,
    ReplicaSilent,
    head_of,
)
from elasticd.gateway.stall import Pulse
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

_FETCH = 30.0
"""Seconds for a document of a replica's guard: a tokenizer has megabytes."""

_PASSING = frozenset((401, 429, 500, 502, 503, 504))
"""Statuses that say nothing of whether it has the document."""

_PROBE = 1.0
"""Seconds a replica gets to accept a connection when it must show that it lives."""

_OURS_ALONE = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)
"""What can go wrong on our side of a connection, whoever is on the other."""


class Exchange:
    """One request and its answer. Made by `Relay.exchange`, which also ends it."""

    def __init__(
        self, session: aiohttp.ClientSession, endpoint: Endpoint, call: Call, pulse: Pulse
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._call = call
        self._unpacker: Unpacker | None = None
        self.pulse = pulse
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
        except aiohttp.ClientConnectorError as refused:
            if refused.os_error.errno in _OURS_ALONE:
                raise OutOfResources(str(refused.os_error)) from refused
            raise ReplicaRefused(_words(refused)) from refused
        except aiohttp.ConnectionTimeoutError as refused:
            raise ReplicaRefused(_words(refused)) from refused
        except (aiohttp.ClientError, OSError) as broken:
            raise ReplicaLost(_words(broken)) from broken
        self.pulse.heard = self._loop.time()
        return self._unpacked(head_of(response.status, _end_to_end(response.headers)))

    async def read(self) -> bytes:
        """The next bytes as they come; empty at the end."""
        assert self._response is not None
        while True:
            self._reading_since = self._loop.time()
            try:
                data = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as broken:
                if self._silent_for is not None:
                    raise ReplicaSilent(self._silent_for) from broken
                raise ReplicaLost(_words(broken)) from broken
            finally:
                self._reading_since = None
            self.pulse.heard = self._loop.time()
            if self._unpacker is None:
                return data
            plain = self._plain(self._unpacker, data)
            if plain or not data:
                return plain

    def _plain(self, unpacker: Unpacker, data: bytes) -> bytes:
        try:
            if data:
                return unpacker.feed(data)
            unpacker.end()
        except BadPacking as bad:
            raise ReplicaLost(f"its answer cannot be unpacked: {bad}") from bad
        return b""

    def _unpacked(self, head: Head) -> Head:
        """The head as it reads once we unpack, where the body must be plain from here on."""
        coding = coding_of(head.headers.get("Content-Encoding"))
        if coding in UNPACKABLE and (
            head.events or not accepts(self._call.headers.get("Accept-Encoding"), coding)
        ):
            self._unpacker = Unpacker()
            del head.headers["Content-Encoding"]
        return head

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
        self._pulses: WeakValueDictionary[tuple[str, int], Pulse] = WeakValueDictionary()
        self._probes: dict[str, asyncio.Future[bool]] = {}

    @asynccontextmanager
    async def exchange(self, endpoint: Endpoint, call: Call) -> AsyncIterator[Exchange]:
        """One attempt at one replica; leaving it, for whatever reason, frees the connection."""
        key = endpoint.replica_id, endpoint.incarnation
        pulse = self._pulses.get(key)
        if pulse is None:
            pulse = self._pulses[key] = Pulse()
        exchange = Exchange(self._session, endpoint, call, pulse)
        try:
            yield exchange
        finally:
            exchange.close()

    async def fetch(self, endpoint: Endpoint, path: str) -> bytes | None:
        """A document of the replica's guard; `None`: it has none. Raises `ReplicaLost`."""
        try:
            async with self._session.get(
                URL(endpoint.url.rstrip("/") + path),
                headers={"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=_FETCH),
            ) as response:
                if response.status in _PASSING:
                    raise ReplicaLost(f"status {response.status}")
                return await response.read() if response.status == 200 else None
        except (aiohttp.ClientError, OSError) as broken:
            raise ReplicaLost(_words(broken)) from broken

    async def lives(self, endpoint: Endpoint) -> bool:
        """Whether the replica still accepts connections. Many who ask at once ask once."""
        probe = self._probes.get(endpoint.url)
        if probe is None:
            probe = self._probes[endpoint.url] = asyncio.ensure_future(_accepts(endpoint.url))
            probe.add_done_callback(lambda _: self._probes.pop(endpoint.url, None))
        return await asyncio.shield(probe)

    async def aclose(self) -> None:
        """Closes all connections."""
        for probe in self._probes.values():
            probe.cancel()
        await self._session.close()


async def _accepts(url: str) -> bool:
    address = URL(url)
    try:
        async with asyncio.timeout(_PROBE):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return False
    writer.close()
    return True


def _request_headers(call: Call, endpoint: Endpoint) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in _end_to_end(call.headers).items()
        if name.lower() not in _OURS
    )
    headers["X-Request-Id"] = call.engine_id
    if call.streamed and "Accept-Encoding" in headers:
        headers["Accept-Encoding"] = "identity"
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    return headers


def _end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Without the headers that speak of one connection only (RFC 9110, 7.6.1)."""
    lines = headers.getall("Connection", ())
    named = {name.strip().lower() for line in lines for name in line.split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if (low := name.lower()) not in _HOP_BY_HOP and low not in named
    )


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


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
