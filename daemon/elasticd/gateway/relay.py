"""One request on its way through one replica: bytes out, bytes in, nothing interpreted.

The only module that knows what engines are sent besides the client's own bytes: it drops the
headers of one connection only, and swaps the client's credentials for the engine's key.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from elasticd.gateway.call import Call
from elasticd.gateway.failures import OutOfResources, ReplicaFailed, ReplicaLost
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.http.head import HOP_BY_HOP, address_of, request_bytes, without
from elasticd.gateway.http.pool import Pool
from elasticd.gateway.stall import Pulse
from elasticd.routing_table import Endpoint, ReplicaKey, RoutingTable

_OURS = HOP_BY_HOP | frozenset(
    ("host", "authorization", "x-request-id", "expect", "content-encoding", "content-length")
)
"""Towards the engine: what we set ourselves, and what was undone when the body was read."""

_OURS_OF_STREAMS = _OURS | {"accept-encoding"}
"""Where events end must be seen."""

_FETCH = 30.0
"""Seconds for a document of a replica's guard: a tokenizer has megabytes."""

_PASSING = frozenset((401, 429, 500, 502, 503, 504))
"""Statuses that say nothing of whether it has the document."""

_HEALTH = "/health"

_PROBE = 1.0
"""Seconds a replica gets to answer when it must show that it lives."""


class Relay:
    """The connections to all replicas."""

    def __init__(self, connect_timeout: float) -> None:
        self._pool = Pool(connect_timeout)
        self._listed: dict[ReplicaKey, Pulse] = {}
        self._pulses: WeakValueDictionary[ReplicaKey, Pulse] = WeakValueDictionary()
        self._probes: dict[str, asyncio.Future[bool]] = {}

    def exchange(self, endpoint: Endpoint, call: Call, pulse: Pulse | None = None) -> Exchange:
        """One attempt at one replica, to be entered; leaving it frees the connection.

        `pulse`: who learns of its signs of life, the replica's own by default.
        """
        if pulse is None:
            pulse = self.pulse(endpoint)
        address = address_of(endpoint.url)
        headers = _request_headers(call, endpoint)
        request = request_bytes(call.method, address, call.target, headers, call.body)
        accepted = call.headers.get("Accept-Encoding")
        return Exchange(self._pool, address, call.method, request, accepted, pulse)

    def aside(self, endpoint: Endpoint, call: Call) -> Exchange:
        """The same for a question that its server answers by itself: says nothing of the engine."""
        return self.exchange(endpoint, call, Pulse())

    def pulse(self, endpoint: Endpoint) -> Pulse:
        """What is known of the replica's signs of life."""
        pulse = self._listed.get(endpoint.replica_key) or self._pulses.get(endpoint.replica_key)
        if pulse is None:
            pulse = self._pulses[endpoint.replica_key] = Pulse()
        return pulse

    def follow(self, table: RoutingTable) -> None:
        """What is known of a replica is kept as long as the table lists it, or it is asked."""
        endpoints = [e for route in table.models for e in route.endpoints]
        self._listed = {e.replica_key: self.pulse(e) for e in endpoints}

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
        """Whether the replica still answers. Many who ask at once ask once.

        That it accepts connections says nothing: those of a process that is killed break before its
        listening socket is closed, and who asks at once may still be let in.
        """
        probe = self._probes.get(endpoint.url)
        if probe is None:
            probe = self._probes[endpoint.url] = asyncio.ensure_future(self._answers(endpoint))
            probe.add_done_callback(lambda _: self._probes.pop(endpoint.url, None))
        return await asyncio.shield(probe)

    async def _answers(self, endpoint: Endpoint) -> bool:
        address = address_of(endpoint.url)
        request = request_bytes("GET", address, _HEALTH, (), b"")
        asked = Exchange(self._pool, address, "GET", request, None, Pulse())
        try:
            async with asyncio.timeout(_PROBE), asked:
                return (await asked.open()).status < 500
        except (TimeoutError, ReplicaFailed, OutOfResources):
            return False

    async def aclose(self) -> None:
        """Closes all connections."""
        for probe in self._probes.values():
            probe.cancel()
        self._pool.close()


def _request_headers(call: Call, endpoint: Endpoint) -> list[tuple[str, str]]:
    lines = without(call.headers, _OURS_OF_STREAMS if call.streamed else _OURS)
    lines.append(("X-Request-Id", call.engine_id))
    if call.streamed and "Accept-Encoding" in call.headers:
        lines.append(("Accept-Encoding", "identity"))
    if endpoint.key:
        lines.append(("Authorization", f"Bearer {endpoint.key}"))
    return lines
