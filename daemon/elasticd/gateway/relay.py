"""One request on its way through one replica: bytes out, bytes in, nothing interpreted.

The only module that knows what engines are sent besides the client's own bytes: it drops the
headers of one connection only, and swaps the client's credentials for the engine's key.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from multidict import CIMultiDict

from elasticd.gateway.call import Call
from elasticd.gateway.failures import ReplicaLost
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.http.head import Address, address_of, end_to_end, request_bytes
from elasticd.gateway.http.pool import Pool
from elasticd.gateway.stall import Pulse
from elasticd.routing_table import Endpoint, RoutingTable
from elasticd.traffic.routing import ReplicaKey, replica_key

_OURS = frozenset(
    ("host", "authorization", "x-request-id", "expect", "content-encoding", "content-length")
)
"""Towards the engine: what we set ourselves, and what was undone when the body was read."""

_FETCH = 30.0
"""Seconds for a document of a replica's guard: a tokenizer has megabytes."""

_PASSING = frozenset((401, 429, 500, 502, 503, 504))
"""Statuses that say nothing of whether it has the document."""

_PROBE = 1.0
"""Seconds a replica gets to accept a connection when it must show that it lives."""


class Relay:
    """The connections to all replicas."""

    def __init__(self, connect_timeout: float) -> None:
        self._pool = Pool(connect_timeout)
        self._pulses: WeakValueDictionary[ReplicaKey, Pulse] = WeakValueDictionary()
        self._listed: list[Pulse] = []
        self._probes: dict[str, asyncio.Future[bool]] = {}

    def exchange(self, endpoint: Endpoint, call: Call) -> Exchange:
        """One attempt at one replica, to be entered; leaving it frees the connection."""
        pulse = self.pulse(endpoint)
        address = address_of(endpoint.url)
        headers = _request_headers(call, endpoint).items()
        request = request_bytes(call.method, address, call.target, headers, call.body)
        accepted = call.headers.get("Accept-Encoding")
        return Exchange(self._pool, address, call.method, request, accepted, pulse)

    def pulse(self, endpoint: Endpoint) -> Pulse:
        """What is known of the replica's signs of life."""
        key = replica_key(endpoint)
        pulse = self._pulses.get(key)
        if pulse is None:
            pulse = self._pulses[key] = Pulse()
        return pulse

    def follow(self, table: RoutingTable) -> None:
        """What is known of a replica is kept as long as the table lists it."""
        self._listed = [self.pulse(e) for route in table.models for e in route.endpoints]

    async def fetch(self, endpoint: Endpoint, path: str) -> bytes | None:
        """A document of the replica's guard; `None`: it has none. Raises `ReplicaFailed`."""
        address = address_of(endpoint.url)
        key = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        request = request_bytes("GET", address, path, key.items(), b"")
        asked = Exchange(self._pool, address, "GET", request, None, Pulse())
        try:
            async with asyncio.timeout(_FETCH), asked:
                head = await asked.open()
                if head.status in _PASSING:
                    raise ReplicaLost(f"status {head.status}")
                document = bytearray()
                while data := await asked.read():
                    document += data
        except TimeoutError as late:
            raise ReplicaLost(f"it did not send {path} within {_FETCH:g} s") from late
        return bytes(document) if head.status == 200 else None

    async def lives(self, endpoint: Endpoint) -> bool:
        """Whether the replica still accepts connections. Many who ask at once ask once."""
        probe = self._probes.get(endpoint.url)
        if probe is None:
            address = address_of(endpoint.url)
            probe = self._probes[endpoint.url] = asyncio.ensure_future(_accepts(address))
            probe.add_done_callback(lambda _: self._probes.pop(endpoint.url, None))
        return await asyncio.shield(probe)

    async def aclose(self) -> None:
        """Closes all connections."""
        for probe in self._probes.values():
            probe.cancel()
        self._pool.close()


async def _accepts(address: Address) -> bool:
    try:
        async with asyncio.timeout(_PROBE):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return False
    writer.close()
    return True


def _request_headers(call: Call, endpoint: Endpoint) -> CIMultiDict[str]:
    headers = end_to_end(call.headers, _OURS)
    headers["X-Request-Id"] = call.engine_id
    if call.streamed and "Accept-Encoding" in headers:
        headers["Accept-Encoding"] = "identity"
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    return headers
