"""The start of a replica's answer: as much as must be seen before anything of it is sent."""

from __future__ import annotations

from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.failures import Opening, ReplicaBusy, ReplicaSilent, failure_told
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.refusal import in_shape
from elasticd.gateway.stall import Stalled, Stalls


class Opener:
    """Opens exchanges, and gives up those whose replica says nothing. `close` it."""

    def __init__(self) -> None:
        self._stalls = Stalls()

    def close(self) -> None:
        """Stops looking for silent replicas."""
        self._stalls.close()

    async def open(self, exchange: Exchange, streamed: bool, config: GatewayConfig) -> Opening:
        """Up to the first whole event of a stream, or the end of any other answer. Raises
        `ReplicaFailed`, also for an answer in which the engine says that it is going."""
        try:
            with self._stalls.first_byte_within(config.first_byte_timeout, exchange.pulse):
                opening = await _read(exchange, streamed, config.answer_buffer)
        except Stalled as stalled:
            raise ReplicaSilent(stalled.seconds) from stalled
        failure = failure_told(opening.head.status, opening.data)
        if failure is not None:
            raise failure
        return opening


async def _read(exchange: Exchange, streamed: bool, buffer: int) -> Opening:
    head = await exchange.open()
    if head.status == 503:
        raise ReplicaBusy("status 503")
    if head.status < 200:
        return in_shape(Opening(head, b"", complete=True))
    # A client that asked for a stream wants bytes as they come, also if they are no events.
    flowing = streamed and head.status < 300 and not head.json and not head.events
    most = 0 if flowing else buffer
    held = bytearray()
    while data := await exchange.read():
        held += data
        if head.events and (b"\n\n" in held or b"\r\n\r\n" in held):
            return Opening(head, bytes(held), complete=False)
        if len(held) > most:
            return Opening(head, bytes(held), complete=False)
    return Opening(head, bytes(held), complete=True)
