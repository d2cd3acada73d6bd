"""The one owner of nodes and replicas.

Nodes and replicas are frozen values; every change goes through `Fleet`, which checks the
transition tables, remembers what changed for the ledger, and mints ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elasticd.core.codec import decode, encode
from elasticd.core.lifecycle import (
    LIVE,
    NODE_TRANSITIONS,
    OCCUPYING,
    REPLICA_TRANSITIONS,
    NodePhase,
    ReplicaPhase,
    check_transition,
)
from elasticd.provider import Offering

TOMBSTONE_AGE = 3600.0
"""Seconds for which an ended node or replica stays listed, with its reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the ledger; `doc` `None` deletes it."""

    kind: str
    id: str
    doc: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Node:
    """Our commitment to one machine. Times are the controller's clock, in seconds.

    `offerings`: what was asked for; `offering`: what we got. `gpus`: what Ray counts, 0 until it
    joined. `trouble`: why the last call for it failed.

    `asked_at`: when the outstanding provider call was asked; `retry_at`: when to ask
    again; `launched_at`: the last time a launch was asked. `listed`: a provider's list has shown
    it; `unseen_since`/`unseen_lists`: complete lists lack it since then, so many in a row.
    `dead_since`: Ray says it is dead. `idle_since`: no replica. `cut_at`: when a drain must be
    over. `notices`: ids of the notices that hold.
    """

    id: str
    pool: str
    phase: NodePhase
    created: float
    since: float
    offerings: tuple[Offering, ...] = ()
    offering: Offering | None = None
    instance_id: str | None = None
    address: str | None = None
    gpus: int = 0
    boot: str = ""
    reason: str = ""
    trouble: str = ""
    asked_at: float | None = None
    retry_at: float | None = None
    launched_at: float | None = None
    attempts: int = 0
    listed: bool = False
    unseen_since: float | None = None
    unseen_lists: int = 0
    dead_since: float | None = None
    idle_since: float | None = None
    cut_at: float | None = None
    notices: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()

    @property
    def expected_gpus(self) -> int:
        """GPUs it has, or will have once it is there (the least of what was asked for)."""
        if self.gpus:
            return self.gpus
        if self.offering is not None:
            return self.offering.gpu_count
        return min((o.gpu_count for o in self.offerings), default=0)


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine, wanted or there. Times are the controller's clock, in seconds.

    `order` is the outstanding or last order to the agent (`start`, `stop` or none), `asked_at`
    when it was given, `taken` whether the agent has confirmed it, `retry_at` when to give it
    again. `absent_since`: complete reports of the agent lack it. `broken_at`: the gateway's
    connection broke. `stop_at`: the end of its drain.
    """

    id: str
    incarnation: int
    model: str
    spec_hash: str
    gpus: int
    phase: ReplicaPhase
    created: float
    since: float
    node_id: str = ""
    url: str = ""
    load_phase: str = ""
    cause: str = ""
    order: str = ""
    asked_at: float | None = None
    taken: bool = False
    retry_at: float | None = None
    absent_since: float | None = None
    broken_at: float | None = None
    ready_at: float | None = None
    stop_at: float | None = None
    log_tail: tuple[str, ...] = ()


class Fleet:
    """Nodes and replicas by id, in the order they were made."""

    def __init__(self, prefix: str, rows: Sequence[Row] = ()) -> None:
        self._prefix = prefix
        self._counter = 0
        self._nodes: dict[str, Node] = {}
        self._replicas: dict[str, Replica] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        nodes = [decode(Node, r.doc) for r in rows if r.kind == "node"]
        replicas = [decode(Replica, r.doc) for r in rows if r.kind == "replica"]
        for node in sorted(nodes, key=lambda n: (n.created, n.id)):
            self._nodes[node.id] = node
        for replica in sorted(replicas, key=lambda r: (r.created, r.id)):
            self._replicas[replica.id] = replica

    def mint(self, kind: str) -> str:
        """A new id, `KIND-ledger-epoch-counter`: unique over all lives of the controller."""
        self._counter += 1
        return f"{kind}-{self._prefix}-{self._counter}"

    def node(self, node_id: str) -> Node | None:
        """The node, or `None` if it is not ours or long gone."""
        return self._nodes.get(node_id)

    def replica(self, replica_id: str) -> Replica | None:
        """The replica, or `None` if it is not ours or long gone."""
        return self._replicas.get(replica_id)

    def nodes(self, phases: Iterable[NodePhase] | None = None) -> list[Node]:
        """All nodes, or those in `phases`."""
        if phases is None:
            return list(self._nodes.values())
        return [n for n in self._nodes.values() if n.phase in phases]

    def replicas(
        self,
        phases: Iterable[ReplicaPhase] | None = None,
        model: str | None = None,
        node_id: str | None = None,
    ) -> list[Replica]:
        """Replicas, narrowed down by phase, model and node."""
        return [
            r
            for r in self._replicas.values()
            if (phases is None or r.phase in phases)
            and (model is None or r.model == model)
            and (node_id is None or r.node_id == node_id)
        ]

    def occupied(self) -> dict[str, int]:
        """GPUs in use by node id, as the replicas there claim them."""
        used: dict[str, int] = {}
        for r in self._replicas.values():
            if r.phase in OCCUPYING and r.node_id:
                used[r.node_id] = used.get(r.node_id, 0) + r.gpus
        return used

    def put_node(self, node: Node) -> Node:
        """Adds or changes a node; a change of phase must be in the table."""
        old = self._nodes.get(node.id)
        if old is not None and old.phase is not node.phase:
            check_transition(node.id, old.phase, node.phase, NODE_TRANSITIONS, node.reason)
        if old != node:
            self._nodes[node.id] = node
            self._dirty["node", node.id] = None
        return node

    def put_replica(self, replica: Replica) -> Replica:
        """Adds or changes a replica; a change of phase must be in the table."""
        old = self._replicas.get(replica.id)
        if old is not None and old.phase is not replica.phase:
            check_transition(
                replica.id, old.phase, replica.phase, REPLICA_TRANSITIONS, replica.cause
            )
        if old != replica:
            self._replicas[replica.id] = replica
            self._dirty["replica", replica.id] = None
        return replica

    def move_node(self, node: Node, phase: NodePhase, now: float, reason: str, **more: Any) -> Node:
        """Takes a node to its next phase; calls of the old phase no longer count as asked."""
        cleared = {"asked_at": None, "retry_at": None, "attempts": 0, "trouble": "", **more}
        return self.put_node(replace(node, phase=phase, since=now, reason=reason, **cleared))

    def move_replica(
        self, replica: Replica, phase: ReplicaPhase, now: float, **more: Any
    ) -> Replica:
        """Takes a replica to its next phase."""
        return self.put_replica(replace(replica, phase=phase, since=now, **more))

    def forget_old(self, now: float) -> None:
        """Drops what ended more than `TOMBSTONE_AGE` ago."""
        for node in self.nodes({NodePhase.GONE}):
            if now - node.since > TOMBSTONE_AGE:
                del self._nodes[node.id]
                self._dirty["node", node.id] = None
        for replica in self.replicas({ReplicaPhase.STOPPED}):
            if now - replica.since > TOMBSTONE_AGE:
                del self._replicas[replica.id]
                self._dirty["replica", replica.id] = None

    def live_on(self, node_id: str) -> list[Replica]:
        """Replicas on the node that have not stopped."""
        return self.replicas(LIVE, node_id=node_id)

    def changed_rows(self) -> Iterator[Row]:
        """What changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        for kind, key in dirty:
            value: Any = (self._nodes if kind == "node" else self._replicas).get(key)
            yield Row(kind, key, None if value is None else encode(value))
