"""The rest of an answer with a parser on its stream, from one replica: rendered, generated,
derendered (`continuation.parsed`).

One thing is asked at a time, of the one replica that is leased; what is generated meanwhile waits
in its exchange, and holds the replica up where that is too much or the client reads slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.gateway.call import Call
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import DERENDER, GENERATE, REASONING, RENDER, ParsedSeam
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.failures import (
    ReplicaBusy,
    ReplicaLost,
    ReplicaOdd,
    ReplicaSilent,
    failure_told,
)
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.reply import Reply
from elasticd.gateway.sse import EventFramer

_LONGEST = 64 * 1024 * 1024
"""Bytes of such an answer: a rendering has some ten for each token of the prompt."""

_PACE = 0.1
"""Seconds from one question for parsed ids to the next; longer where each answer takes long, so
that these take at most half of the engine's time: it parses all ids so far again each time."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The replica that goes on. `patience`: seconds it has for the whole answer to a question."""

    exchange: Callable[[Call], Exchange]
    patience: float

    async def ask(self, call: Call) -> bytes:
        """A whole answer. Raises `ReplicaFailed`; `ReplicaOdd` for one that is none."""
        told = bytearray()
        try:
            async with asyncio.timeout(self.patience), self.exchange(call) as exchange:
                head = await exchange.open()
                while data := await exchange.read():
                    told += data
                    if len(told) > _LONGEST:
                        raise ReplicaOdd(f"its answer to {call.target} has no end")
        except TimeoutError as late:
            raise ReplicaSilent(self.patience) from late
        if head.status == 200:
            return bytes(told)
        failure = failure_told(head.status, bytes(told))
        if failure is None and head.status == 503:
            failure = ReplicaBusy("status 503")
        words = f"status {head.status} from {call.target}: {told[:300].decode('utf-8', 'replace')}"
        # Its like has answered this request before: what it has against it is its own.
        raise failure or ReplicaOdd(words)


class ParsedAnswer:
    """The same for each replica that it takes: `asked`, then `stream`."""

    def __init__(self, call: Call, reply: Reply, seam: ParsedSeam) -> None:
        self._call = call
        self._reply = reply
        self._seam = seam

    async def asked(self, leased: Leased) -> Call | None:
        """What has the answer generated; `None`: nothing was left of it, and the client has it.

        Raises `ReplicaFailed`, and `Unreadable` where it cannot go on.
        """
        rendering = leased.ask(self._to(RENDER, self._call.body))
        answer = await self._reply.patiently(rendering)
        try:
            body = self._seam.rendered(answer)
        except Broken as broken:
            raise ReplicaLost(str(broken)) from broken
        if body is not None:
            return self._to(GENERATE, body)
        await self._pass_on(leased)
        self._reply.end()
        return None

    async def stream(self, leased: Leased, exchange: Exchange, first: bytes) -> None:
        """Raises `ReplicaFailed`, and `Unreadable` where it cannot go on."""
        seam, framer, now = self._seam, EventFramer(), asyncio.get_running_loop().time
        data = first
        while True:
            began = now()
            _taken(seam, framer.feed(data))
            await self._pass_on(leased)
            if seam.done:
                break
            took = now() - began
            await asyncio.sleep(max(_PACE - took, took))
            if not (data := await exchange.read()):
                raise ReplicaLost("its stream ended before the answer did")
        self._reply.end()

    async def _pass_on(self, leased: Leased) -> None:
        """What is generated so far, parsed, to the client."""
        seam, reply = self._seam, self._reply
        while (question := seam.question()) is not None:
            answer = await leased.ask(self._to(DERENDER, question))
            if (counting := seam.count()) is not None:
                seam.counted(await self._count(leased, counting))
            try:
                reply.send(seam.derendered(answer))
            except Broken as broken:
                raise ReplicaLost(str(broken)) from broken
            await reply.drain()

    async def _count(self, leased: Leased, question: bytes) -> bytes | None:
        try:
            return await leased.ask(self._to(REASONING, question))
        except Unreadable:  # not every parser can
            return None

    def _to(self, target: str, body: bytes) -> Call:
        call = self._call
        named = f"{call.engine_id}-{self._seam.losses}"
        return call._replace(target=target, body=body, engine_id=named)


def _taken(seam: ParsedSeam, events: bytes) -> None:
    try:
        seam.take(events)
    except Broken as broken:
        raise ReplicaLost(str(broken)) from broken
