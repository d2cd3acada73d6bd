"""Questions to replicas beside any stream, and what it says of one that does not answer them."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from elasticd.gateway.desk import Desk
from elasticd.gateway.failures import (
    ReplicaBusy,
    ReplicaFailed,
    ReplicaLost,
    ReplicaOdd,
    ReplicaRefused,
)
from elasticd.gateway.parsed_answer import Leased
from elasticd.gateway.rehearsal import QUESTION
from elasticd.gateway.relay import Relay
from elasticd.routing_table import Endpoint


class BrokenReplicas(Protocol):
    """Who wants to know of broken connections."""

    def broken(self, replica_id: str, incarnation: int, message: str) -> None: ...


class Aside:
    """Implements `rehearsal.Asides`."""

    def __init__(self, relay: Relay, desk: Desk, reports: BrokenReplicas) -> None:
        self._relay = relay
        self._desk = desk
        self._reports = reports

    def leased(self, endpoint: Endpoint) -> Leased:
        """To ask it something. Its answer is no sign of life of its engine."""
        return Leased(partial(self._relay.aside, endpoint), QUESTION)

    def failed(self, endpoint: Endpoint, failure: ReplicaFailed) -> None:
        """Sets it aside as for any request that it fails, unless it only answers oddly, or takes
        nothing any more. What broke or refused is reported; what is silent may be busy."""
        if isinstance(failure, ReplicaOdd) or not self._desk.takes(endpoint):
            return
        self._desk.replica_failed(endpoint)
        if isinstance(failure, ReplicaLost | ReplicaRefused) and not isinstance(
            failure, ReplicaBusy
        ):
            self._reports.broken(endpoint.replica_id, endpoint.incarnation, str(failure))
