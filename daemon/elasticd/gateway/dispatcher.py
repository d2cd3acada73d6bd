"""One request from its arrival to its last byte: ticket → lease → relay, and again if need be.

Until the first byte of the answer is with the client a lost or refusing replica is replaced
invisibly. After it, a stream ends with one error event; `_broken_stream` is the seam where a
continuation on another replica will take over. What an engine answers to a request (any status
but 503) goes to the client unchanged and says nothing against the replica.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import structlog

from elasticd.gateway.call import Call
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.desk import Desk
from elasticd.gateway.openai import ApiError, replica_lost, replica_silent, timed_out
from elasticd.gateway.relay import (
    Exchange,
    Head,
    Relay,
    ReplicaBusy,
    ReplicaFailed,
    ReplicaLost,
    ReplicaSilent,
)
from elasticd.gateway.reply import Reply
from elasticd.gateway.sse import EventFramer
from elasticd.traffic.admission import Ask, Lease

_log = structlog.get_logger("elasticd.gateway")


class BrokenReplicas(Protocol):
    """Who wants to know of broken connections."""

    def broken(self, replica_id: str, incarnation: int, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Opening:
    """The start of an answer: what can be sent at once, and whether that is all of it."""

    head: Head
    data: bytes
    complete: bool


class Dispatcher:
    """Answers calls by way of leases."""

    def __init__(
        self, config: GatewayConfig, desk: Desk, relay: Relay, reports: BrokenReplicas
    ) -> None:
        self._config = config
        self._desk = desk
        self._relay = relay
        self._reports = reports

    async def answer(self, call: Call, reply: Reply) -> None:
        """Gives the client its complete answer, or raises `ApiError` for the server to tell."""
        try:
            async with asyncio.timeout(call.timeout) as limit:
                await self._answer(call, reply)
        except TimeoutError as late:
            if not limit.expired() or call.timeout is None:
                raise
            raise timed_out(call.timeout) from late

    async def _answer(self, call: Call, reply: Reply) -> None:
        claim = self._desk.claim(Ask(call.model, call.priority))
        losses = 0
        while True:
            async with claim:
                waiting = claim.lease()
                lease = await (reply.patiently(waiting) if call.streamed else waiting)
                failure = await self._attempt(lease, call, reply)
            if failure is None:
                return
            lost = isinstance(failure, ReplicaLost)
            losses += lost
            _log.warning(
                "replica failed before the first byte",
                request_id=call.request_id,
                replica=lease.endpoint.replica_id,
                error=str(failure),
            )
            if losses >= self._config.max_losses:
                raise replica_lost(call.model)
            claim = self._desk.claim_again(lease, lost=lost)

    async def _attempt(self, lease: Lease, call: Call, reply: Reply) -> ReplicaFailed | None:
        """One replica's try; returns the failure if nothing of an answer has been sent."""
        async with self._relay.exchange(lease.endpoint, call) as exchange:
            try:
                start = self._open(exchange)
                opening = await (reply.patiently(start) if call.streamed else start)
            except ReplicaFailed as failure:
                self._note(lease, failure)
                return failure
            self._desk.replica_answered(lease)
            opening.head.headers["X-Elasticd-Replica"] = lease.endpoint.replica_id
            if opening.complete:
                await reply.whole(opening.head.status, opening.head.headers, opening.data)
            else:
                await self._stream(lease, call, exchange, opening, reply)
        return None

    async def _open(self, exchange: Exchange) -> _Opening:
        """Up to the first whole event of a stream, or the end of any other answer."""
        head = await exchange.open()
        if head.status == 503:
            raise ReplicaBusy("status 503")
        held = bytearray()
        while data := await exchange.read():
            held += data
            if head.events and (b"\n\n" in held or b"\r\n\r\n" in held):
                return _Opening(head, bytes(held), complete=False)
            if len(held) > self._config.answer_buffer:
                return _Opening(head, bytes(held), complete=False)
        return _Opening(head, bytes(held), complete=True)

    async def _stream(
        self, lease: Lease, call: Call, exchange: Exchange, opening: _Opening, reply: Reply
    ) -> None:
        """Passes on the rest as it comes, in whole events where it is events."""
        events = opening.head.events
        framer = EventFramer()
        await reply.begin(opening.head.status, opening.head.headers, events=events)
        exchange.limit_silence(self._config.idle_timeout)
        data = opening.data
        try:
            while data:
                whole = framer.feed(data) if events else data
                if whole:
                    await reply.write(whole)
                data = await exchange.read()
        except ReplicaFailed as failure:
            self._note(lease, failure)
            await self._broken_stream(lease, call, failure)
        rest = framer.flush()
        if rest:
            await reply.write(rest)
        await reply.end()

    async def _broken_stream(self, lease: Lease, call: Call, failure: ReplicaFailed) -> None:
        """The replica is gone in mid-stream: the client is told, never left to guess."""
        _log.warning(
            "stream broken",
            request_id=call.request_id,
            replica=lease.endpoint.replica_id,
            error=str(failure),
        )
        raise self._stream_error(call, failure) from failure

    def _stream_error(self, call: Call, failure: ReplicaFailed) -> ApiError:
        if isinstance(failure, ReplicaSilent):
            return replica_silent(call.model, self._config.idle_timeout)
        return replica_lost(call.model)

    def _note(self, lease: Lease, failure: ReplicaFailed) -> None:
        """Sets the replica aside, unless one stream only was silent; reports a broken one."""
        if isinstance(failure, ReplicaSilent):
            return
        self._desk.replica_failed(lease)
        if isinstance(failure, ReplicaBusy):
            return
        endpoint = lease.endpoint
        self._reports.broken(endpoint.replica_id, endpoint.incarnation, str(failure))
