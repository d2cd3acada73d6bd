"""One request from its arrival to its last byte: ticket → lease → relay, and again if need be.

Until the first byte of the answer is with the client a replica that fails is replaced invisibly,
by the rules of `Replay`. After it, a stream goes on elsewhere where it can (`Journey`), or ends
with one error event. What an engine answers to a request goes to the client unchanged, and a 4xx
says nothing against the replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

import structlog

from elasticd.gateway import errors
from elasticd.gateway.call import Call
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.continuation.engines import Engines
from elasticd.gateway.continuation.terms import Terms
from elasticd.gateway.desk import Desk
from elasticd.gateway.errors import ApiError
from elasticd.gateway.failures import (
    EngineFault,
    Opening,
    OutOfReach,
    OutOfResources,
    ReplicaBusy,
    ReplicaFailed,
    ReplicaLeaving,
    ReplicaLost,
    ReplicaRefused,
    ReplicaSilent,
)
from elasticd.gateway.http.exchange import Exchange
from elasticd.gateway.journey import Journey, check_goes_on
from elasticd.gateway.leaving import Leaving
from elasticd.gateway.opener import Opener
from elasticd.gateway.outcomes import Outcomes
from elasticd.gateway.parsed_answer import Leased
from elasticd.gateway.refusal import in_shape
from elasticd.gateway.rehearsal import Asides
from elasticd.gateway.relay import Relay
from elasticd.gateway.replay import Replay
from elasticd.gateway.reply import Reply
from elasticd.gateway.suspicion import Suspects, Suspicion, first_sign, is_silent
from elasticd.traffic.retries import RetryBudget
from elasticd.traffic.tickets import Ask, Lease

_log = structlog.get_logger("elasticd.gateway")

_FAULTS = frozenset((500, 502, 504))
"""Statuses by which an engine says that it failed; the request may or may not be to blame."""

_FACTS_WAIT = 3.0
"""Seconds that the first streams of a new spec wait until its engines are known: without that they
could not go on when their replica is lost."""

_BREATH = 0.5
"""Seconds until a stream is tried again for which our own machine had no descriptor."""


class BrokenReplicas(Protocol):
    """Who wants to know of broken connections."""

    def broken(self, replica_id: str, incarnation: int, message: str) -> None: ...


class Dispatcher:
    """Answers calls by way of leases."""

    def __init__(
        self,
        config: GatewayConfig,
        desk: Desk,
        relay: Relay,
        engines: Engines,
        reports: BrokenReplicas,
        outcomes: Outcomes,
        leaving: Leaving,
        asides: Asides,
    ) -> None:
        self._config = config
        self._desk = desk
        self._relay = relay
        self._engines = engines
        self._reports = reports
        self._outcomes = outcomes
        self._leaving = leaving
        self._asides = asides
        self._loop = asyncio.get_running_loop()
        self._opener = Opener()
        self._budget = RetryBudget()
        self._suspects = Suspects()

    def close(self) -> None:
        """Stops looking for silent replicas."""
        self._opener.close()

    def reconfigure(self, config: GatewayConfig) -> None:
        """Other limits for requests from now on."""
        self._config = config

    def answer(self, call: Call, key: str, reply: Reply) -> Coroutine[Any, Any, None]:
        """To be awaited: gives the client its complete answer, or raises `ApiError` for the server
        to tell."""
        if call.timeout is None:
            return self._answer(call, key, reply)
        return self._answer_within(call.timeout, call, key, reply)

    async def _answer_within(self, seconds: float, call: Call, key: str, reply: Reply) -> None:
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._answer(call, key, reply)
        except TimeoutError as late:
            if not limit.expired():
                raise
            raise errors.timed_out(seconds) from late

    async def _answer(self, call: Call, key: str, reply: Reply) -> None:
        replay = Replay(call.model, self._config.max_losses, lambda: self._may_repeat(call))
        journey = Journey(call, reply, replay)
        self._budget.begin(self._loop.time())
        try:
            await self._try_replicas(journey, key)
        except ApiError:
            if journey.replay.fault is None or reply.bytes_sent:
                self._outcomes.lost(call.model, journey.left)
                raise
            _give(reply, journey.replay.fault.opening)
            return
        except ConnectionError:  # its client's: nobody has lost anything
            raise
        except Exception as fault:
            self._outcomes.lost(call.model, journey.left)
            if not isinstance(fault, OutOfResources):
                raise
            _log.error("out of resources", request_id=call.request_id, error=str(fault))
            raise errors.overloaded() from fault
        finally:
            journey.close()
            self._leaving.over(journey)
            self._budget.end()
        if not journey.refused:
            self._outcomes.answered(call.model)

    def _may_repeat(self, call: Call) -> bool:
        if self._budget.take(self._loop.time()):
            return True
        _log.warning("retry budget spent", request_id=call.request_id, model=call.model)
        return False

    async def _try_replicas(self, journey: Journey, key: str) -> None:
        call, reply, replay = journey.call, journey.reply, journey.replay
        claim = self._desk.claim(Ask(call.model, call.priority, key))
        while True:
            with claim:
                lease = claim.at_once
                if lease is None:
                    waiting = claim.lease()
                    lease = await (reply.patiently(waiting) if call.streamed else waiting)
                failure = None
                try:
                    await self._try_it(lease, journey)
                except (ReplicaFailed, OutOfResources) as failed:
                    failure = await self._judged(failed, lease, journey)
            if failure is None:
                self._ended(lease, journey)
                return
            if isinstance(failure, OutOfReach):
                await asyncio.sleep(_BREATH)
            elif _has_left(journey, failure):
                journey.left.append(lease.endpoint.replica_id)
            _tell(failure, lease, journey)
            if journey.begun and await journey.go_on(failure):
                self._outcomes.went_on(call.model, journey.left, begun=True)
                return
            replay.failed(lease, failure, begun=journey.begun)
            lost = not isinstance(failure, ReplicaRefused)
            again = isinstance(failure, OutOfReach)
            claim = self._desk.claim_again(lease, lost=lost, begun=journey.begun, again=again)

    def _ended(self, lease: Lease, journey: Journey) -> None:
        """The answer is complete."""
        model = journey.call.model
        self._leaving.ended(model, journey)
        if self._leaving.is_going(lease.endpoint.replica_key):
            self._outcomes.finished(model, lease.endpoint.replica_id)

    async def _judged(
        self, failed: ReplicaFailed | OutOfResources, lease: Lease, journey: Journey
    ) -> ReplicaFailed:
        """The failure after which another replica may try. Raises `OutOfResources` where none
        may."""
        if isinstance(failed, OutOfResources):
            if not journey.begun or not journey.may_wait_for_room():
                raise failed
            return OutOfReach(str(failed))
        self._note(lease, failed)
        if not isinstance(failed, ReplicaRefused | ReplicaLeaving):
            await self._settle(journey)
        if isinstance(failed, ReplicaLost) and not failed.gone and not journey.begun:
            gone = asyncio.ensure_future(self._is_gone(lease))
            if journey.replay.may_fail_once:
                journey.doubt = gone  # it is tried again in any case, and at once
            else:
                failed.gone = await gone
        return failed

    async def _settle(self, journey: Journey) -> None:
        """What became of the replica that failed first; a stream goes on without waiting for it."""
        doubt = journey.doubt
        if doubt is None or (journey.begun and not doubt.done()):
            return
        journey.doubt = None
        if await doubt:
            journey.replay.excuse()

    async def _try_it(self, lease: Lease, journey: Journey) -> None:
        """Raises `ReplicaFailed`, and `OutOfResources`."""
        facts = self._engines.facts(lease.endpoint.spec_hash)
        if facts is None and isinstance(journey.call.terms, Terms):
            facts = await self._engines.known(lease.endpoint.spec_hash, _FACTS_WAIT)
        leased, asked = None, journey.asked(facts)
        if asked is None:
            leased = Leased(
                partial(self._relay.exchange, lease.endpoint), self._config.idle_timeout
            )
            asked = await journey.rendered(leased)
            if asked is None:
                return
        exchange = self._relay.exchange(lease.endpoint, asked)
        run = self._leaving.enter(lease, journey, exchange)
        try:
            limit = self._first_sign(exchange, asked, journey) if journey.begun else None
            start = self._opener.open(exchange, asked.streamed, self._config, limit)
            opening = await (journey.reply.patiently(start) if asked.streamed else start)
            self._see(opening, lease, journey)
            if opening.complete and not journey.begun:
                journey.refused = opening.head.status >= 400
                _give(journey.reply, opening)
                return
            doubt = self._suspicion(lease, journey, exchange) if opening.head.events else None
            exchange.limit_silence(self._config.idle_timeout, doubt)
            await journey.stream(exchange, opening, leased)
        finally:
            exchange.close()
            self._leaving.exit(run)

    def _first_sign(self, exchange: Exchange, asked: Call, journey: Journey) -> float:
        """Seconds in which a replica that is to go on has to tell anybody anything; the third loss
        is never one on suspicion."""
        config = self._config
        if not journey.replay.may_lose_one:
            return config.idle_timeout
        patience = first_sign(exchange.pulse, len(asked.body), config.stall_after)
        return min(config.idle_timeout, patience)

    def _see(self, opening: Opening, lease: Lease, journey: Journey) -> None:
        """The start of an answer, if it is one. Raises `ReplicaFailed`."""
        call, replay = journey.call, journey.replay
        if opening.head.status in _FAULTS and not journey.begun:
            self._check_fault(lease, opening, replay)
        if journey.begun:
            check_goes_on(opening)
            replica = lease.endpoint.replica_id
            _log.info("stream goes on", request_id=call.request_id, replica=replica)
        if opening.head.status not in _FAULTS:
            self._desk.replica_answered(lease)
            if replay.suspect is not None:
                self._desk.replica_failed(replay.suspect.endpoint)
        if journey.left:
            self._outcomes.went_on(call.model, journey.left, begun=journey.begun)
            journey.left.clear()
        opening.head.headers["X-Elasticd-Replica"] = lease.endpoint.replica_id

    def _check_fault(self, lease: Lease, opening: Opening, replay: Replay) -> None:
        """Raises `EngineFault` if another replica should try, and the answer can be kept."""
        if opening.complete and replay.may_fail_once and self._desk.has_another(lease):
            raise EngineFault(opening)

    def _note(self, lease: Lease, failure: ReplicaFailed) -> None:
        """Sets the replica aside and reports it, unless the request alone may be to blame."""
        if isinstance(failure, ReplicaLeaving | OutOfReach | EngineFault):
            return
        if isinstance(failure, ReplicaSilent) and not self._is_stuck(lease, failure):
            return
        self._desk.replica_failed(lease.endpoint)
        if not isinstance(failure, ReplicaBusy):
            endpoint = lease.endpoint
            self._reports.broken(endpoint.replica_id, endpoint.incarnation, str(failure))

    def _is_stuck(self, lease: Lease, silent: ReplicaSilent) -> bool:
        """Whether the silence is the replica's, and not of this stream or of many replicas."""
        model, replica = lease.ticket.ask.model, lease.endpoint.replica_key
        now = self._loop.time()
        return silent.everywhere and self._suspects.may_eject(model, replica, now)

    def _suspicion(self, lease: Lease, journey: Journey, exchange: Exchange) -> Suspicion:
        """Whether the stream is moved before its time is over."""

        def may_move(patience: float) -> bool:
            now = self._loop.time()
            if not journey.may_be_moved:
                return False
            others = [
                other
                for other in self._desk.others(lease)
                if not is_silent(self._relay.pulse(other), patience, now)
            ]
            return bool(others) and journey.would_go_on(others, self._asides) is True

        return Suspicion(exchange.pulse, self._config.stall_after, may_move)

    async def _is_gone(self, lease: Lease) -> bool:
        """Whether a connection broke because its replica goes, and not because of its request."""
        return not await self._relay.lives(lease.endpoint) or not self._desk.is_open(lease)


def _has_left(journey: Journey, failure: ReplicaFailed) -> bool:
    """Whether the replica had the request, and has it no more."""
    if journey.begun:
        return journey.streams_here
    return isinstance(failure, ReplicaLost | ReplicaSilent | ReplicaLeaving)


def _give(reply: Reply, opening: Opening) -> None:
    opening = in_shape(opening)
    reply.whole(opening.head.status, opening.head.headers, opening.data)


def _tell(failure: ReplicaFailed, lease: Lease, journey: Journey) -> None:
    told = _log.info if isinstance(failure, ReplicaLeaving) else _log.warning
    what = "stream broken" if journey.begun else "replica failed before the first byte"
    told(
        "request leaves its replica" if isinstance(failure, ReplicaLeaving) else what,
        request_id=journey.call.request_id,
        replica=lease.endpoint.replica_id,
        error=str(failure),
    )
