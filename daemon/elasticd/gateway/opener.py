"""The start of a replica's answer: as much as must be seen before anything of it is sent."""

from __future__ import annotations

from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.continuation.kept import ERROR, blames_request
from elasticd.gateway.failures import (
    Head,
    Opening,
    ReplicaBusy,
    ReplicaLost,
    ReplicaSilent,
    failure_told,
)
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.refusal import in_shape
from elasticd.gateway.sse import EventFramer
from elasticd.gateway.stall import PASSED_OVER, Stalled, Stalls

_DATA, _END = b"data:", b"data: [DONE]"

_LONGEST_PREFACE = 1024 * 1024
"""Bytes of comments and the like after which the engine is taken to speak in its own way."""


class Opener:
    """Opens exchanges, and gives up those whose replica says nothing. `close` it."""

    def __init__(self) -> None:
        self._stalls = Stalls()

    def close(self) -> None:
        """Stops looking for silent replicas."""
        self._stalls.close()

    async def open(
        self, exchange: Exchange, streamed: bool, config: GatewayConfig, limit: float | None = None
    ) -> Opening:
        """Up to the first whole event of a stream, or the end of any other answer. Raises
        `ReplicaFailed`, also for an answer in which the engine says that it is going.

        `limit`: seconds that the replica may tell nobody anything; then it is found silent to all.
        """
        within = config.first_byte_timeout if limit is None else limit
        try:
            with self._stalls.first_byte_within(within, exchange.pulse):
                head = await exchange.open()
                opening = _at_once(exchange, head, config.answer_buffer)
                if opening is None:
                    opening = await _read(exchange, head, streamed, config.answer_buffer)
        except Stalled as stalled:
            everywhere = limit is not None and stalled.seconds < PASSED_OVER * within
            raise ReplicaSilent(stalled.seconds, everywhere=everywhere) from stalled
        failure = failure_told(opening.head.status, opening.data)
        if failure is not None:
            raise failure
        return opening


def _at_once(exchange: Exchange, head: Head, buffer: int) -> Opening | None:
    """Nearly every answer that is no stream is there with its head; `None`: it is to be read."""
    if not head.json or head.status < 200 or head.status == 503:
        return None
    rest = exchange.at_once()
    return None if rest is None else Opening(head, rest, complete=len(rest) <= buffer)


async def _read(exchange: Exchange, head: Head, streamed: bool, buffer: int) -> Opening:
    if head.status == 503:
        raise ReplicaBusy("status 503")
    if head.status < 200:
        return in_shape(Opening(head, b"", complete=True))
    if head.events and head.status == 200:
        return await _read_events(exchange, head)
    # A client that asked for a stream wants bytes as they come, also if they are no events.
    flowing = streamed and head.status < 300 and not head.json and not head.events
    most = 0 if flowing else buffer
    held = bytearray()
    while data := await exchange.read():
        held += data
        if len(held) > most:
            return Opening(head, bytes(held), complete=False)
    return Opening(head, bytes(held), complete=True)


async def _read_events(exchange: Exchange, head: Head) -> Opening:
    """Up to the first event of the answer. One that is none, or never comes, is a loss: the client
    has nothing yet, and another replica may do better."""
    framer, whole = EventFramer(), b""
    while data := await exchange.read():
        whole += framer.feed(data)
        begin = whole if whole.startswith(_DATA) else whole[whole.find(b"\n" + _DATA) + 1 :]
        if begin.startswith(_DATA):
            _check_begin(begin)
            return Opening(head, whole + framer.rest, complete=False)
        if len(whole) > _LONGEST_PREFACE:
            return Opening(head, whole + framer.rest, complete=False)
    raise ReplicaLost("its stream ended before the answer began")


def _check_begin(begin: bytes) -> None:
    """Raises `ReplicaFailed` where the answer is over or has failed before it began."""
    if begin.startswith(_END):
        raise ReplicaLost("its stream has an end and nothing before")
    if not begin.startswith(ERROR):
        return
    event = begin.partition(b"\n\n")[0]
    if failure := failure_told(200, event):
        raise failure
    if not blames_request(event):
        raise ReplicaLost("an error instead of an answer")
