"""Whether a stream that runs could go on elsewhere, found out before it has to leave its replica.

Some of what decides that is known only to engines (what they make of the request's fields) or only
by a look at all of the stream so far. After a loss nothing is lost by trying; who leaves a replica
that still answers has an answer to lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from elasticd.gateway.call import Call
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import RENDER, ParsedSeam
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.continuation.seam import Seam
from elasticd.gateway.failures import OutOfResources, ReplicaFailed
from elasticd.gateway.parsed_answer import Leased
from elasticd.routing_table import Endpoint, ReplicaKey

QUESTION = 5.0
"""Seconds that a replica gets to say what it makes of a request."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds until one that gave no answer is asked again for the same stream."""

_log = structlog.get_logger("elasticd.gateway")


class Asides(Protocol):
    """Who is asked beside the stream itself, and is told who did not answer."""

    def leased(self, endpoint: Endpoint) -> Leased: ...
    def failed(self, endpoint: Endpoint, failure: ReplicaFailed) -> None: ...


class Rehearsal:
    """Of one stream, while its first replica has it. `sure`: the outcome; `None`: not known yet.

    `cancel` it when the stream has left: what is found out then is about another one.
    """

    __slots__ = ("_again", "_call", "_seam", "_task", "sure")

    def __init__(self, call: Call, seam: Seam | ParsedSeam) -> None:
        self._call = call
        self._seam = seam
        self.sure: bool | None = None
        self._task: asyncio.Task[None] | None = None
        self._again: dict[ReplicaKey, tuple[float, float]] = {}

    def look(self, endpoints: Iterable[Endpoint], asides: Asides) -> bool | None:
        """What is known. Asks the first of these replicas whose turn it is, where it takes one."""
        if self.sure is not None or (self._task is not None and not self._task.done()):
            return self.sure
        seam = self._seam
        if isinstance(seam, ParsedSeam):
            endpoint = self._next(endpoints)
            if endpoint is not None:
                self._task = asyncio.create_task(self._ask(seam, endpoint, asides))
        elif seam.is_long:
            kept = seam.so_far()
            self._task = asyncio.create_task(self._read(lambda: seam.rehearse(kept)))
        else:
            self._judge(lambda: seam.rehearse(seam.so_far()))
        return self.sure

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        if self._task is not None:
            self._task.cancel()

    def _next(self, endpoints: Iterable[Endpoint]) -> Endpoint | None:
        now = asyncio.get_running_loop().time()
        for endpoint in endpoints:
            due, pause = self._again.get(endpoint.replica_key, (now, _FIRST_PAUSE))
            if due <= now:
                later = now + pause, min(2 * pause, _LONGEST_PAUSE)
                self._again[endpoint.replica_key] = later
                return endpoint
        return None

    async def _ask(self, seam: ParsedSeam, endpoint: Endpoint, asides: Asides) -> None:
        call = self._call
        question = call._replace(target=RENDER, engine_id=f"{call.engine_id}-rehearsal")
        try:
            rendering = await asides.leased(endpoint).ask(question)
            kept = seam.so_far()
            await self._read(lambda: seam.rehearse(kept, rendering))
        except OutOfResources as ours:
            self._tell_unknown(endpoint, ours)
        except ReplicaFailed as failure:
            self._tell_unknown(endpoint, failure)
            asides.failed(endpoint, failure)
        except Broken as odd:
            self._tell_unknown(endpoint, odd)

    async def _read(self, rehearse: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(rehearse)
            self.sure = True
        except Unreadable as bad:
            self._refused(bad)

    def _judge(self, rehearse: Callable[[], None]) -> None:
        try:
            rehearse()
            self.sure = True
        except Unreadable as bad:
            self._refused(bad)

    def _refused(self, why: Unreadable) -> None:
        self.sure = False
        _log.info(
            "stream stays where it is for as long as that lasts",
            request_id=self._call.request_id,
            why=str(why),
        )

    def _tell_unknown(self, endpoint: Endpoint, failure: Exception) -> None:
        _log.info(
            "not known whether a stream could go on elsewhere",
            request_id=self._call.request_id,
            replica=endpoint.replica_id,
            error=str(failure),
        )
