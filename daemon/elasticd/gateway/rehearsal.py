"""Whether a stream that runs could go on elsewhere, found out before it has to leave its replica.

Some of what decides that is known only to engines (what they make of the request's fields) or only
by a look at all of the stream so far. After a loss nothing is lost by trying; who leaves a replica
that still answers has an answer to lose.
"""

from __future__ import annotations

import asyncio

import structlog

from elasticd.gateway.call import Call
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import RENDER, ParsedSeam
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.continuation.seam import Seam
from elasticd.gateway.failures import OutOfResources, ReplicaFailed
from elasticd.gateway.parsed_answer import Leased

_log = structlog.get_logger("elasticd.gateway")


class Rehearsal:
    """Of one stream, while its first replica has it. `sure`: the outcome; `None`: not known yet."""

    __slots__ = ("_task", "sure")

    def __init__(self, call: Call, seam: Seam | ParsedSeam, leased: Leased) -> None:
        self.sure: bool | None = None
        self._task: asyncio.Task[None] | None = None
        if isinstance(seam, Seam) and not seam.is_long:
            try:
                seam.rehearse(seam.so_far())
                self.sure = True
            except Unreadable as bad:
                self._refused(call, bad)
        else:
            self._task = asyncio.create_task(self._rehearse(call, seam, leased))

    @property
    def is_over(self) -> bool:
        """Whether it will not know more: without an outcome, another one may."""
        return self._task is None or self._task.done()

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        if self._task is not None:
            self._task.cancel()

    async def _rehearse(self, call: Call, seam: Seam | ParsedSeam, leased: Leased) -> None:
        try:
            if isinstance(seam, ParsedSeam):
                question = call._replace(target=RENDER, engine_id=f"{call.engine_id}-rehearsal")
                rendering = await leased.ask(question)
                await asyncio.to_thread(seam.rehearse, seam.so_far(), rendering)
            else:
                await asyncio.to_thread(seam.rehearse, seam.so_far())
            self.sure = True
        except Unreadable as bad:
            self._refused(call, bad)
        except (ReplicaFailed, OutOfResources, Broken) as failed:
            _log.info(
                "not known whether a stream could go on elsewhere",
                request_id=call.request_id,
                error=str(failed),
            )

    def _refused(self, call: Call, why: Unreadable) -> None:
        self.sure = False
        _log.info(
            "stream stays where it is for as long as that lasts",
            request_id=call.request_id,
            why=str(why),
        )
