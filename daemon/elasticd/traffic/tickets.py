"""What travels between admission and the async shell: asks, tickets, leases and their outcomes.

What every request makes is a tuple: a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from elasticd.routing_table import Endpoint, ReplicaKey

DEFAULT_PRIORITY = 5


class Ask(NamedTuple):
    """What a request wants: a slot of the model. Priority 9 goes first, 0 last.

    `key` names who asks, for fairness; everybody without a name is one.
    """

    model: str
    priority: int = DEFAULT_PRIORITY
    key: str = ""


class Ticket(NamedTuple):
    """A waiting request. `deadline` in seconds; `tried` are replicas that failed it before.

    `spec_hash`: only replicas of this spec may take it, for they go on with what another began;
    empty: any.
    """

    id: int
    ask: Ask
    arrived: float
    deadline: float
    tried: frozenset[ReplicaKey] = frozenset()
    spec_hash: str = ""


class Lease(NamedTuple):
    """A ticket's claim on one slot of one replica."""

    ticket: Ticket
    endpoint: Endpoint


class Refusal(enum.Enum):
    """Why a ticket was not even kept waiting."""

    NO_TABLE = "no_table"
    UNKNOWN_MODEL = "unknown_model"
    QUEUE_FULL = "queue_full"
    SPEC_GONE = "spec_gone"
    """What began its answer is not served any more, and will not be."""


class Granted(NamedTuple):
    """The ticket has a slot."""

    lease: Lease

    @property
    def ticket(self) -> Ticket:
        return self.lease.ticket


@dataclass(frozen=True, slots=True)
class Expired:
    """No slot came in time. `state` says what the model was waiting for.

    `hopeless`: nothing is coming, so it was told at once.
    """

    ticket: Ticket
    state: str
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """The ticket may not wait."""

    ticket: Ticket
    why: Refusal


Outcome = Granted | Expired | Rejected
