"""One request over all the replicas it takes: what each is asked, what its client has by then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

import structlog

from elasticd.gateway import errors
from elasticd.gateway.call import Call
from elasticd.gateway.continuation import seam as seams
from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.ids import asking_for_ids
from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.parsed import ParsedSeam
from elasticd.gateway.continuation.record import Unreadable
from elasticd.gateway.continuation.seam import Rest, Seam
from elasticd.gateway.continuation.terms import Kind, NotContinued, Terms, parsed_terms
from elasticd.gateway.failures import (
    Opening,
    ReplicaFailed,
    ReplicaLost,
    ReplicaRefused,
    ReplicaSilent,
)
from elasticd.gateway.http.exchange import Exchange, Sink
from elasticd.gateway.parsed_answer import Leased, ParsedAnswer
from elasticd.gateway.passage import Passage
from elasticd.gateway.rehearsal import Asides, Rehearsal
from elasticd.gateway.replay import Replay
from elasticd.gateway.reply import Reply
from elasticd.gateway.sse import EventFramer
from elasticd.routing_table import Endpoint
from elasticd.traffic.leaving import Running

_log = structlog.get_logger("elasticd.gateway")

_SHORTAGES = 20
"""Times that a stream is tried again because our own machine had no room for it."""


_NO_LOSS = ReplicaFailed("no replica was lost")


class Journey:
    """One request. `begun`: its client has a part of the answer, so it cannot start again.

    `refused`: the engine has answered with an error. `doubt`: whether the replica that failed it
    first is gone; not known yet.
    """

    __slots__ = (
        "_here",
        "_loss",
        "_parsed",
        "_question",
        "_rehearsal",
        "_seam",
        "_shortages",
        "_terms",
        "_why_not",
        "begun",
        "call",
        "doubt",
        "left",
        "refused",
        "replay",
        "reply",
    )

    def __init__(self, call: Call, reply: Reply, replay: Replay) -> None:
        self.call = call
        self.reply = reply
        self.replay = replay
        self.begun = False
        self.refused = False
        self.doubt: asyncio.Future[bool] | None = None
        self.left: list[str] = []
        """Replicas that it had to leave, while it is not known what becomes of it."""
        self._seam: Seam | ParsedSeam | None = None
        self._terms = call.terms
        self._why_not = ""
        self._question: Call | None = None
        self._parsed: ParsedAnswer | None = None
        self._loss = _NO_LOSS
        self._here: tuple[float, int] | None = None
        self._shortages = 0
        self._rehearsal: Rehearsal | None = None

    def close(self) -> None:
        """It is over, or has left its first replica: what a rehearsal would find out is void."""
        if self._rehearsal is not None:
            self._rehearsal.cancel()
            self._rehearsal = None

    @property
    def movable(self) -> bool:
        """Whether it can leave its replica now and be answered elsewhere, as far as is known."""
        if not self.begun:
            return True
        if self._seam is None:
            return False
        return self._rehearsal is None or self._rehearsal.sure is not False

    def would_go_on(self, endpoints: Iterable[Endpoint], asides: Asides) -> bool | None:
        """Whether another replica could go on from here; `None`: not known yet, ask again.

        `endpoints`: replicas of the same spec that can be asked what they make of the request.
        """
        if not self.begun or self._question is not None or self._parsed is not None:
            return True  # by what is asked from now on it has come this far
        if self._seam is None:
            return False
        if self._rehearsal is None:
            self._rehearsal = Rehearsal(self.call, self._seam)
        return self._rehearsal.look(endpoints, asides)

    def progress(self, now: float, usual: float | None) -> Running:
        """How far the stream has come by `now` (loop time)."""
        seam = self._seam
        if not self.begun or seam is None or self._here is None:
            return Running()
        since, before = self._here
        emitted = seam.emitted
        return Running(
            begun=True,
            emitted=emitted,
            here=emitted - before,
            seconds=now - since,
            most=seam.most,
            usual=usual,
        )

    def length(self) -> int | None:
        """Tokens of the answer, about; `None` where nobody counts them."""
        return self._seam.emitted if self._seam is not None else None

    def asked(self, facts: EngineFacts | None) -> Call | None:
        """What a replica of which these facts are known is asked; `None`: to render, first."""
        self._here = None
        if self._question is not None:
            return self._question
        if self._parsed is not None:
            return None
        self._seam = None
        terms = may_be_continued(self._terms, facts)
        if isinstance(terms, NotContinued) or facts is None:
            self._why_not = terms.reason if isinstance(terms, NotContinued) else ""
            return self.call
        on_parser = facts.parser and terms.kind is Kind.CHAT
        self._seam = ParsedSeam(terms, facts, self.call.body) if on_parser else Seam(terms, facts)
        if terms.wants_ids:
            return self.call
        return self.call._replace(body=asking_for_ids(self.call.body))

    async def rendered(self, leased: Leased) -> Call | None:
        """What the replica that goes on with a parsed answer is asked; `None`: nothing is left to
        ask. Raises `ReplicaFailed`, and `ApiError` where the stream ends here."""
        assert self._parsed is not None
        try:
            return await self._parsed.asked(leased)
        except Unreadable as bad:
            self._give_up(self._loss, str(bad))

    async def stream(self, exchange: Exchange, opening: Opening, leased: Leased | None) -> None:
        """Passes a stream on to its end. Raises `ReplicaFailed`, and `ApiError` where it ends
        here."""
        emitted = self._seam.emitted if self._seam is not None else 0
        self._here = asyncio.get_running_loop().time(), emitted
        if self._question is not None:
            await self._pass_on_rest(exchange, opening)
        elif self._parsed is not None and leased is not None:
            self.reply.comment(seams.MARK)
            try:
                await self._parsed.stream(leased, exchange, opening.data)
            except Unreadable as bad:
                self._give_up(self._loss, str(bad))
            except ReplicaRefused as refused:  # a question beside the stream: it had that
                raise ReplicaLost(str(refused)) from refused
        else:
            await self._pass_on(exchange, opening)

    @property
    def streams_here(self) -> bool:
        """Whether the replica that is asked now has had a part in the stream."""
        return self._here is not None

    def may_wait_for_room(self) -> bool:
        """Whether it is worth trying again where our own machine lacked something."""
        self._shortages += 1
        return self._seam is not None and self._shortages <= _SHORTAGES

    @property
    def may_be_moved(self) -> bool:
        """Whether another replica could go on with the stream, as far as is known."""
        return self.begun and self._seam is not None and self.replay.may_lose_one

    async def go_on(self, failure: ReplicaFailed) -> bool:
        """After a loss: sees to what the next replica is asked; true if nothing is left to ask.

        Raises `ApiError` where the stream ends here.
        """
        self.close()
        seam, self._loss = self._seam, failure
        if seam is None:
            self._give_up(failure, self._why_not)
        try:
            # Long answers take long to read: not on the loop, where all the others wait for it.
            todo = await asyncio.to_thread(seam.lost) if seam.is_long else seam.lost()
        except Unreadable as bad:
            self._give_up(failure, str(bad))
        if isinstance(todo, Rest):
            self.reply.send(todo.data)
            self.reply.end()
            return True
        call = self.call
        if isinstance(seam, ParsedSeam):
            self._parsed = ParsedAnswer(call, self.reply, seam)
            return False
        assert todo is not None
        number = seam.losses
        self._question = call._replace(
            target=seams.PATH,
            body=todo.body,
            engine_id=f"{call.engine_id}-{number}",
        )
        return False

    async def _pass_on(self, exchange: Exchange, opening: Opening) -> None:
        """The first replica's bytes as they come, in whole events where it is events."""
        head = opening.head
        self.reply.begin(head.status, head.headers, events=head.events)
        self.begun = True
        if head.events:
            await self._pass_on_events(exchange, opening)
        else:
            self._seam = None
            await self._pour(exchange, opening.data, self._as_it_comes)
            self.reply.end()

    async def _pass_on_events(self, exchange: Exchange, opening: Opening) -> None:
        seam, passage = self._seam, Passage(self._seam, self.reply.send)
        await self._pour(exchange, opening.data, passage.take)
        if seam is not None and not seam.is_whole:
            raise ReplicaLost("its stream ended before the answer did")
        passage.flush()
        self.reply.end()

    async def _pass_on_rest(self, exchange: Exchange, opening: Opening) -> None:
        """What another replica's ids become."""
        reply, seam = self.reply, self._seam
        assert isinstance(seam, Seam)
        framer = EventFramer()

        def take(data: bytes) -> bool:
            if ours := _continued(seam, framer.feed(data)):
                reply.send(ours)
            return seam.done

        reply.comment(seams.MARK)
        await self._pour(exchange, opening.data, take)
        if not seam.done:
            raise ReplicaLost("its stream ended before the answer did")
        reply.end()

    async def _pour(self, exchange: Exchange, first: bytes, take: Sink) -> None:
        """Everything into `take`, as fast as the client reads. Nothing is awaited per token."""
        if take(first):
            return
        self.reply.feed_from(exchange)
        try:
            await exchange.pump(take)
        finally:
            self.reply.feed_from(None)

    def _as_it_comes(self, data: bytes) -> bool:
        self.reply.send(data)
        return False

    def _give_up(self, failure: ReplicaFailed, why: str) -> NoReturn:
        """The client is told, never left to guess."""
        _log.warning("stream lost", request_id=self.call.request_id, error=str(failure), why=why)
        if isinstance(failure, ReplicaSilent):
            raise errors.replica_silent(self.call.model, failure.seconds) from failure
        raise errors.replica_lost(self.call.model) from failure


def _continued(seam: Seam, events: bytes) -> bytes:
    try:
        return seam.feed(events)
    except Broken as broken:
        raise ReplicaLost(str(broken)) from broken


def may_be_continued(
    terms: Terms | NotContinued, facts: EngineFacts | None
) -> Terms | NotContinued:
    """The terms, if engines like this one can go on with them."""
    if isinstance(terms, NotContinued):
        return terms
    if facts is None:
        return NotContinued("nothing is known of its engine")
    if facts.penalties:
        return NotContinued("its engine counts repetitions in the answer alone")
    if facts.parser and terms.kind is Kind.CHAT:
        if not facts.scale_out:
            return NotContinued("a parser is on its stream, without --enable-scale-out")
        return parsed_terms(terms)
    return terms


def check_goes_on(opening: Opening) -> None:
    """Raises `ReplicaLost` unless it is the stream that was asked for."""
    if opening.head.status != 200 or not opening.head.events:
        told = opening.data[:300].decode("utf-8", "replace")
        raise ReplicaLost(f"it does not go on: status {opening.head.status}: {told}")
