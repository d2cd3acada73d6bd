"""What the gateway knows of the engines of each spec in the table, learned in the background.

Until an engine has told, its streams are passed on as they are and not continued. It is asked again
until it does, or another one of its spec: also an answer that is none says little of the next one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

import structlog

from elasticd.gateway.continuation.engine import EngineFacts, NoFacts, facts_of
from elasticd.gateway.failures import OutOfResources, ReplicaFailed
from elasticd.routing_table import Endpoint, ReplicaKey, RoutingTable, Tier

FACTS, TOKENIZER = "/elasticd/engine", "/elasticd/tokenizer"
"""Answered by the engine's guard."""

_PAUSE, _LONGEST = 2.0, 60.0
"""Seconds until it is tried again: where nobody answers always the first, where what is answered
are no facts twice as many each time, up to the second. A replica that is new is asked at once."""

_log = structlog.get_logger("elasticd.gateway")


class Fetches(Protocol):
    """Who gets a document from a replica; `None`: it has none. Raises `ReplicaFailed`."""

    async def fetch(self, endpoint: Endpoint, path: str) -> bytes | None: ...


class _Asking:
    """The replicas of one spec are asked, until one has told.

    `tried`: all have been asked once, whatever came of it. `news`: there are others now.
    """

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self.tried = asyncio.Event()
        self.news = asyncio.Event()
        self.endpoints = endpoints
        self.task: asyncio.Task[None] | None = None
        self._keys = _keys(endpoints)
        self._told = False

    def tell(self, endpoint: Endpoint, none: NoFacts) -> None:
        """Logs, once, that one has answered without facts."""
        if not self._told:
            _log.warning(
                "streams of this engine are not continued, it will be asked again",
                replica=endpoint.replica_id,
                spec=endpoint.spec_hash,
                error=str(none),
            )
        self._told = True

    def follow(self, endpoints: list[Endpoint]) -> None:
        """These are its replicas now; none: it ends."""
        keys = _keys(endpoints)
        if not keys or keys - self._keys:
            self.news.set()
        self.endpoints, self._keys = endpoints, keys


class Engines:
    """Facts by spec hash. `close` it."""

    def __init__(self, fetches: Fetches) -> None:
        self._fetches = fetches
        self._facts: dict[str, EngineFacts] = {}
        self._asking: dict[str, _Asking] = {}

    def facts(self, spec_hash: str) -> EngineFacts | None:
        """What is known of the engines of this spec; `None`: nothing, or nothing yet."""
        return self._facts.get(spec_hash)

    async def known(self, spec_hash: str, wait: float) -> EngineFacts | None:
        """The same, after at most `wait` seconds if its engines have not all been asked once."""
        asking = self._asking.get(spec_hash)
        if asking is not None and not asking.tried.is_set():
            await _within(wait, asking.tried)
        return self._facts.get(spec_hash)

    def follow(self, table: RoutingTable) -> None:
        """Learns of new specs, forgets those that the table no longer has."""
        listed: dict[str, list[Endpoint]] = {}
        routes = [route for route in table.models if route.continues]
        for route in routes:
            for endpoint in route.endpoints:
                if endpoint.tier is not Tier.CLOSED:
                    listed.setdefault(endpoint.spec_hash, []).append(endpoint)
        kept = {e.spec_hash for route in routes for e in route.endpoints}
        self._facts = {spec: facts for spec, facts in self._facts.items() if spec in kept}
        for spec, asking in self._asking.items():
            asking.follow(listed.get(spec, []))
        for spec in listed.keys() - self._facts.keys() - self._asking.keys():
            asking = self._asking[spec] = _Asking(listed[spec])
            learning = self._learn(spec, asking)
            asking.task = asyncio.get_running_loop().create_task(learning)

    def close(self) -> None:
        """Asks nobody any more."""
        for asking in self._asking.values():
            if asking.task is not None:
                asking.task.cancel()

    async def _learn(self, spec: str, asking: _Asking) -> None:
        pause = _PAUSE
        try:
            while endpoints := asking.endpoints:
                asking.news.clear()
                answered = False
                for endpoint in endpoints:
                    try:
                        self._facts[spec] = await self._ask(endpoint)
                    except (ReplicaFailed, OutOfResources):
                        continue
                    except NoFacts as none:
                        answered = True
                        asking.tell(endpoint, none)
                    else:
                        return
                asking.tried.set()
                if await _within(pause, asking.news) or not answered:
                    pause = _PAUSE
                else:
                    pause = min(2 * pause, _LONGEST)
        finally:
            del self._asking[spec]
            asking.tried.set()

    async def _ask(self, endpoint: Endpoint) -> EngineFacts:
        """Raises `NoFacts` where it answers without any, and `ReplicaFailed`."""
        document = await self._fetches.fetch(endpoint, FACTS)
        tokenizer = await self._fetches.fetch(endpoint, TOKENIZER) if document else None
        if not document or not tokenizer:
            raise NoFacts("it tells nothing of itself")
        return await asyncio.to_thread(facts_of, document, tokenizer)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Whether it happens in that time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _keys(endpoints: list[Endpoint]) -> set[ReplicaKey]:
    return {endpoint.replica_key for endpoint in endpoints}
