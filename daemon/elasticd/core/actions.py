"""Intentions. The shell carries each out, and each ends in exactly one event."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.provider import Offering
from elasticd.routing_table import RoutingTable


@dataclass(frozen=True, slots=True)
class LaunchNode:
    """Rent a machine: ends in `LaunchAnswered` or `LaunchFailed`. Repeated unchanged."""

    node_id: str
    pool: str
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True)
class TerminateNode:
    """Give a machine back: ends in `TerminateAnswered` or `TerminateFailed`; asked until gone.

    `node_id` is empty for an orphan: a machine of ours that no node stands for.
    """

    node_id: str
    pool: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class ReadBootLog:
    """Ask the provider what a machine that failed has printed: ends in `BootLogRead`."""

    node_id: str
    pool: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class StartReplica:
    """Start an engine on a node: ends in `ReplicaOrderTaken` or `ReplicaOrderFailed`.

    `address` is the node's address, where the engine listens.
    """

    replica_id: str
    incarnation: int
    node_id: str
    model: str
    spec_hash: str
    gpus: int
    address: str


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop an engine, `grace` seconds for what it still runs: ends like `StartReplica`."""

    replica_id: str
    incarnation: int
    grace: float


@dataclass(frozen=True, slots=True)
class PublishTable:
    """Give the gateway a new table. Needs no commit first and no event after.

    The endpoints' keys are empty: the shell derives them, the core holds no secret.
    """

    table: RoutingTable


Action = LaunchNode | TerminateNode | ReadBootLog | StartReplica | StopReplica | PublishTable


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence of why, about a subject: `model:NAME`, `node:ID`, `replica:ID`, `pool:NAME`."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step decided. `wake_at`: when time alone will change the answer (`None`: never).

    `reasons` tells what changed in this step; nothing changed: empty.
    """

    actions: tuple[Action, ...]
    reasons: tuple[Reason, ...]
    wake_at: float | None
