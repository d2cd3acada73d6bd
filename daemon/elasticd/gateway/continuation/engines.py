"""What the gateway knows of the engines of each spec in the table, learned in the background.

Until an engine has told, its streams are passed on as they are and not continued. It is asked again
as long as it does not answer; an answer that is none counts for good.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from elasticd.gateway.continuation.engine import EngineFacts, NoFacts, facts_of
from elasticd.gateway.failures import OutOfResources, ReplicaFailed
from elasticd.routing_table import Endpoint, RoutingTable, Tier

FACTS, TOKENIZER = "/elasticd/engine", "/elasticd/tokenizer"
"""Answered by the engine's guard."""

_PAUSE = 2.0
"""Seconds until it is tried again."""

_log = structlog.get_logger("elasticd.gateway")


class Fetches(Protocol):
    """Who gets a document from a replica; `None`: it has none. Raises `ReplicaFailed`."""

    async def fetch(self, endpoint: Endpoint, path: str) -> bytes | None: ...


class Engines:
    """Facts by spec hash. `close` it."""

    def __init__(self, fetches: Fetches) -> None:
        self._fetches = fetches
        self._facts: dict[str, EngineFacts | None] = {}
        self._endpoints: dict[str, list[Endpoint]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def facts(self, spec_hash: str) -> EngineFacts | None:
        """What is known of the engines of this spec; `None`: nothing, or nothing yet."""
        return self._facts.get(spec_hash)

    async def known(self, spec_hash: str, wait: float) -> EngineFacts | None:
        """The same, after at most so many seconds where they are being asked for the first time."""
        task = self._asking.get(spec_hash)
        if spec_hash not in self._facts and task is not None:
            await asyncio.wait([task], timeout=wait)
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
        self._endpoints = listed
        self._facts = {spec: facts for spec, facts in self._facts.items() if spec in kept}
        for spec in listed.keys() - self._facts.keys() - self._asking.keys():
            self._asking[spec] = asyncio.get_running_loop().create_task(self._learn(spec))

    def close(self) -> None:
        """Asks nobody any more."""
        for task in self._asking.values():
            task.cancel()

    async def _learn(self, spec: str) -> None:
        try:
            while endpoints := self._endpoints.get(spec):
                for endpoint in endpoints:
                    try:
                        self._facts[spec] = await self._ask(endpoint)
                    except (ReplicaFailed, OutOfResources):
                        continue
                    return
                await asyncio.sleep(_PAUSE)
        finally:
            self._asking.pop(spec, None)

    async def _ask(self, endpoint: Endpoint) -> EngineFacts | None:
        document = await self._fetches.fetch(endpoint, FACTS)
        tokenizer = await self._fetches.fetch(endpoint, TOKENIZER) if document else None
        told = {"replica": endpoint.replica_id, "spec": endpoint.spec_hash}
        if document is None or tokenizer is None:
            _log.info(
                "streams of this engine are not continued: it tells nothing of itself", **told
            )
            return None
        try:
            return await asyncio.to_thread(facts_of, document, tokenizer)
        except NoFacts as none:
            _log.warning("streams of this engine are not continued", **told, error=str(none))
            return None
