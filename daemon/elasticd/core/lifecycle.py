"""The two state machines, as tables.

Node      REQUESTED → BOOTING → READY → DRAINING → TERMINATING → GONE
          any → TERMINATING (gave up, or lost: the reason is kept); DRAINING → READY (withdrawn)
Replica   PENDING → STARTING → READY → DRAINING → STOPPED; any → STOPPED; DRAINING → READY

Ask for the named sets below, not for single phases: DRAINING is occupied but not counted, and
that alone makes a replacement start at the notice and not at the loss.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar


class NodePhase(enum.StrEnum):
    """Where our commitment to one machine stands."""

    REQUESTED = "requested"
    BOOTING = "booting"
    READY = "ready"
    DRAINING = "draining"
    TERMINATING = "terminating"
    GONE = "gone"


class ReplicaPhase(enum.StrEnum):
    """Where one replica stands."""

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


_N = NodePhase
_R = ReplicaPhase

NODE_TRANSITIONS: Mapping[NodePhase, frozenset[NodePhase]] = {
    _N.REQUESTED: frozenset({_N.BOOTING, _N.TERMINATING, _N.GONE}),
    _N.BOOTING: frozenset({_N.READY, _N.TERMINATING, _N.GONE}),
    _N.READY: frozenset({_N.DRAINING, _N.TERMINATING, _N.GONE}),
    _N.DRAINING: frozenset({_N.READY, _N.TERMINATING, _N.GONE}),
    _N.TERMINATING: frozenset({_N.GONE}),
    _N.GONE: frozenset(),
}

REPLICA_TRANSITIONS: Mapping[ReplicaPhase, frozenset[ReplicaPhase]] = {
    _R.PENDING: frozenset({_R.STARTING, _R.STOPPED}),
    _R.STARTING: frozenset({_R.READY, _R.DRAINING, _R.STOPPED}),
    _R.READY: frozenset({_R.DRAINING, _R.STOPPED}),
    _R.DRAINING: frozenset({_R.READY, _R.STOPPED}),
    _R.STOPPED: frozenset(),
}

NODE_COMING = frozenset({_N.REQUESTED, _N.BOOTING})
NODE_PAID = frozenset({_N.REQUESTED, _N.BOOTING, _N.READY, _N.DRAINING, _N.TERMINATING})

OCCUPYING = frozenset({_R.STARTING, _R.READY, _R.DRAINING})
COUNTED = frozenset({_R.PENDING, _R.STARTING, _R.READY})
LIVE = frozenset({_R.PENDING, _R.STARTING, _R.READY, _R.DRAINING})

Phase = TypeVar("Phase", NodePhase, ReplicaPhase)


class InvalidTransition(Exception):
    """A step the table does not have; the message tells who, from where, whereto and why."""


def check_transition(
    who: str, old: Phase, new: Phase, table: Mapping[Phase, frozenset[Phase]], why: str
) -> None:
    """Raises `InvalidTransition` unless the table has the arrow `old → new`."""
    if new not in table[old]:
        raise InvalidTransition(f"{who}: {old.value} → {new.value} ({why})")
