"""What the admin API asks of the controller. The API knows nothing else of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elasticd.core.events import Event
from elasticd.ops.metrics import RequestTotals
from elasticd.routing_table import RoutingTable


class DrillRefused(Exception):
    """A preemption drill that cannot be done, with the HTTP status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Tables(Protocol):
    """Where the routing table is."""

    async def wait_for_other(
        self, epoch: int, version: int, wait: float
    ) -> RoutingTable | None: ...


class JournalEntry(Protocol):
    """One step of the controller as its journal tells it; `elasticd.runtime.ledger`'s entries.

    `events` and the plan's `actions` are the core's values as plain JSON with their `type`; the
    plan's `reasons` are `{"subject", "text"}`. `at` is in seconds since 1970.
    """

    @property
    def seq(self) -> int: ...

    @property
    def at(self) -> float: ...

    @property
    def epoch(self) -> int: ...

    @property
    def events(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def plan(self) -> Mapping[str, Any]: ...


async def _at_once() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class AdminPorts:
    """The controller, as the admin API sees it.

    `status` is the whole JSON-able picture. `problem` says what is wrong with the loop (empty:
    alive), `waiting_for` what is missing until it is in control (empty: ready). `emit` tells the
    loop a fact. `preempt(node, notice, by)` takes a node's machine away, `notice` seconds after a
    notice or at once; it raises `DrillRefused`. `journal(since_seq, since, limit)` gives at most
    `limit` entries after `since_seq` and not before `since` (seconds since 1970), oldest first.
    `reload(by)` reads the configuration again and says what came of it: `problem` (empty: it holds
    now), `changed` and `needs_restart` (paths), `warnings` (sentences). `recorded` returns once
    what was emitted before has been decided on: whether the ledger has it. `now` is its clock.
    `requests`: what the gateway has told of them, for metrics.
    """

    status: Callable[[], dict[str, Any]]
    problem: Callable[[], str]
    waiting_for: Callable[[], list[str]]
    emit: Callable[[Event], None]
    preempt: Callable[[str, float | None, str], Awaitable[dict[str, Any]]]
    tables: Tables
    journal: Callable[[int, float, int], Awaitable[Sequence[JournalEntry]]]
    reload: Callable[[str], Awaitable[dict[str, Any]]]
    recorded: Callable[[], Awaitable[bool]] = _at_once
    now: Callable[[], float] = time.time
    requests: RequestTotals = field(default_factory=RequestTotals)
