"""One request and its answer, over whichever connections that takes.

The protocol gives the answer part by part, as it comes; whoever waits for it awaits one future for
the head and each `read`, or one for all the rest (`pump`), never one per token. Leaving the
exchange early closes the connection at once, which is how an engine learns that nobody wants its
tokens any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from multidict import CIMultiDict

from elasticd.gateway.encoding import UNPACKABLE, BadPacking, Unpacker, accepts, coding_of
from elasticd.gateway.failures import Head, ReplicaLost, ReplicaSilent, head_of
from elasticd.gateway.http.client_protocol import ReplicaConnection
from elasticd.gateway.http.head import Address
from elasticd.gateway.http.pool import Pool
from elasticd.gateway.stall import Pulse
from elasticd.gateway.suspicion import Suspicion, is_silent

_HELD = 256 * 1024
"""Bytes of an answer that wait for their reader at most; then the replica waits, too."""

_LATE = 0.25
"""Seconds by which a look that comes late tells of our own sleep instead of a replica's."""

_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
"""Methods that may be asked twice (RFC 9110, 9.2.2)."""

Sink = Callable[[bytes], bool]
"""Takes a piece of an answer; says whether it wants no more."""


class Exchange:
    """`accepted`: the `Accept-Encoding` of who asks. An answer in another coding is unpacked, and
    so is a stream of events, of which we must see where events end."""

    __slots__ = (
        "_accepted",
        "_address",
        "_connection",
        "_ended",
        "_failure",
        "_head",
        "_held",
        "_held_size",
        "_limit",
        "_look_at",
        "_loop",
        "_method",
        "_paused",
        "_pool",
        "_request",
        "_silent_since",
        "_sink",
        "_suspicion",
        "_timer",
        "_unpacker",
        "_waiter",
        "pulse",
    )

    def __init__(
        self,
        pool: Pool,
        address: Address,
        method: str,
        request: bytes,
        accepted: str | None,
        pulse: Pulse,
    ) -> None:
        self.pulse = pulse
        self._pool = pool
        self._address = address
        self._method = method
        self._request = request
        self._accepted = accepted
        self._loop = pool.loop
        self._connection: ReplicaConnection | None = None
        self._head: Head | None = None
        self._held: list[bytes] = []
        self._held_size = 0
        self._ended = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._paused = False
        self._unpacker: Unpacker | None = None
        self._limit = 0.0
        self._look_at = 0.0
        self._suspicion: Suspicion | None = None
        self._silent_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- for who asks --------------------------------------------------------------------------

    async def open(self) -> Head:
        """Sends the request and waits for the head of the answer. Raises `ReplicaFailed`."""
        connection = self._pool.kept(self._address) or await self._pool.connect(self._address)
        self._ask(connection)
        if self._head is None and self._failure is None:
            await self._wait()
        if self._head is None:
            if connection.used and self._method in _REPEATABLE:
                self._failure = None  # most likely it was closed while it idled
                self._ask(await self._pool.connect(self._address))
                if self._head is None and self._failure is None:
                    await self._wait()
            if self._failure is not None:
                raise self._failure
        assert self._head is not None
        return self._head

    def at_once(self) -> bytes | None:
        """The rest of an answer that has come to its end; `None`: it is to be read."""
        if not self._ended or self._failure is not None:
            return None
        return self._taken()

    async def read(self) -> bytes:
        """The next bytes as they come; empty at the end. Raises `ReplicaFailed`."""
        while not self._held:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return b""
            await self._wait()
        return self._taken()

    async def pump(self, sink: Sink) -> None:
        """Gives `sink` all the rest as it comes. Raises `ReplicaFailed`, or what `sink` raises."""
        if self._held and sink(self._taken()):
            return
        if not self._ended and self._failure is None:
            self._sink = sink
            self.pulse.streams += 1
            try:
                await self._wait()
            finally:
                self._sink = None
                self.pulse.streams -= 1
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        """Whoever reads the answer is slow: the replica has to wait."""
        if not self._paused and self._connection is not None:
            self._paused = True
            self._silent_since = None
            self._connection.pause()

    def resume(self) -> None:
        """The reader has caught up."""
        if self._paused and self._connection is not None:
            self._paused = False
            if self._waiter is not None:
                self._silent_since = self._loop.time()
            self._connection.resume()

    def limit_silence(self, seconds: float, suspicion: Suspicion | None = None) -> None:
        """From now on, to be waited for longer than this ends in `ReplicaSilent`, and earlier on
        suspicion.

        One sleepy timer instead of one per token: it looks how long there was nothing.
        """
        self._limit = seconds
        self._suspicion = suspicion
        now = self._loop.time()
        pause = seconds if suspicion is None else min(seconds, suspicion.next_look(0.0, now))
        self._look_again(pause, now)

    def leave(self, why: Exception) -> None:
        """Ends it from outside: whoever waits for it gets `why`."""
        if not self._ended:
            self._give_up(why)

    def close(self) -> None:
        """Ends the exchange; an answer that is not complete takes its connection along."""
        if self._timer is not None:
            self._timer.cancel()
        self.pulse.asked.pop(self, None)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    # -- from the connection -------------------------------------------------------------------

    def head_came(self, status: int, headers: CIMultiDict[str]) -> None:
        """The head of the answer."""
        self.pulse.heard = self._loop.time()
        self._head = self._unpacked(head_of(status, headers))
        self._wake()

    def data_came(self, data: bytes) -> None:
        """What one read of the socket brought of its body."""
        self.pulse.heard = now = self._loop.time()
        since = self._silent_since
        if since is not None:
            if now - since > self.pulse.longest and self._sink is not None:
                self.pulse.longest = now - since
            self._silent_since = now
        if self._unpacker is not None:
            data = self._plain(self._unpacker, data)
            if not data:
                return
        if self._sink is not None:
            try:
                enough = self._sink(data)
            except Exception as error:  # whoever awaits `pump` gets it
                self._give_up(error)
                return
            if enough:
                self._ended = True
                self.close()
                self._wake()
            return
        self.pulse.asked.pop(self, None)
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size > _HELD:
            self.pause()
        self._wake()

    def ended(self) -> None:
        """The answer is complete, and its connection has other things to do."""
        self.resume()
        self._connection = None
        if self._unpacker is not None:
            try:
                self._unpacker.end()
            except BadPacking as bad:
                self._failure = _unreadable(bad)
        self._ended = True
        self._wake()

    def lost(self, why: str) -> None:
        """There will be no more of it."""
        self._connection = None
        if self._failure is None:
            self._failure = ReplicaLost(why)
        self._wake()

    # -- inside --------------------------------------------------------------------------------

    def _ask(self, connection: ReplicaConnection) -> None:
        self._connection = connection
        self.pulse.asked[self] = (self._loop.time(), len(self._request))
        connection.ask(self._request, self, without_body=self._method == "HEAD")

    async def _wait(self) -> None:
        self._waiter = waiter = self._loop.create_future()
        self._silent_since = None if self._paused else self._loop.time()
        try:
            await waiter
        finally:
            self._waiter = None
            self._silent_since = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and self._sink_is_done():
            self._waiter.set_result(None)

    def _sink_is_done(self) -> bool:
        return self._sink is None or self._ended or self._failure is not None

    def _taken(self) -> bytes:
        held = self._held
        data = held[0] if len(held) == 1 else b"".join(held)
        held.clear()
        self._held_size = 0
        self.resume()
        return data

    def _give_up(self, failure: Exception) -> None:
        self._failure = failure
        self.close()
        self._wake()

    def _look(self) -> None:
        now, waited = self._loop.time(), 0.0
        late = now - self._look_at
        if self._silent_since is not None and late > _LATE:
            # We were away, and what came meanwhile may not be read yet.
            self._silent_since += late
            self._look_again(_LATE, now)
            return
        if self._silent_since is not None:
            waited = now - self._silent_since
            if failure := self._silence(waited, now):
                self._give_up(failure)
                return
        pause = self._limit - waited
        if self._suspicion is not None:
            pause = min(pause, self._suspicion.next_look(waited, now))
        self._look_again(pause, now)

    def _look_again(self, pause: float, now: float) -> None:
        self._look_at = now + pause
        self._timer = self._loop.call_later(pause, self._look)

    def _silence(self, waited: float, now: float) -> ReplicaSilent | None:
        if waited >= self._limit:
            return ReplicaSilent(self._limit, everywhere=is_silent(self.pulse, self._limit, now))
        return self._suspicion.judged(waited, now) if self._suspicion is not None else None

    def _unpacked(self, head: Head) -> Head:
        """The head as it reads once we unpack, where the body must be plain from here on."""
        coding = coding_of(head.headers.get("Content-Encoding"))
        if coding in UNPACKABLE and (head.events or not accepts(self._accepted, coding)):
            self._unpacker = Unpacker()
            del head.headers["Content-Encoding"]
        return head

    def _plain(self, unpacker: Unpacker, data: bytes) -> bytes:
        try:
            return unpacker.feed(data)
        except BadPacking as bad:
            self._give_up(_unreadable(bad))
            return b""


def _unreadable(bad: BadPacking) -> ReplicaLost:
    return ReplicaLost(f"its answer cannot be unpacked: {bad}")
