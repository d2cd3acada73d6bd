"""The one owner of nodes and replicas.

Nodes and replicas are frozen values; every change goes through `Fleet`, which checks the
transition tables, remembers what changed for the ledger, and mints ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from elasticd.core.codec import decode, encode
from elasticd.core.index import Groups
from elasticd.core.lifecycle import (
    LIVE,
    NODE_PAID,
    NODE_TRANSITIONS,
    OCCUPYING,
    REPLICA_TRANSITIONS,
    NodePhase,
    ReplicaPhase,
    check_transition,
)
from elasticd.core.records import Node, Replica, Row

__all__ = ["Fleet", "Node", "Replica", "Row"]

TOMBSTONE_AGE = 3600.0
"""Seconds for which an ended node or replica stays listed, with its reason."""


class Fleet:
    """Nodes and replicas by id, in the order they were made."""

    def __init__(self, prefix: str, rows: Sequence[Row] = ()) -> None:
        self._prefix = prefix
        self._counter = 0
        self._ranks: dict[str, int] = {}
        self._next_rank = 0
        self._nodes: dict[str, Node] = {}
        self._replicas: dict[str, Replica] = {}
        self._nodes_in: Groups[NodePhase] = Groups(self._ranks.__getitem__)
        self._replicas_in: Groups[ReplicaPhase] = Groups(self._ranks.__getitem__)
        self._paid_in: Groups[str] = Groups(self._ranks.__getitem__)
        self._of_model: Groups[str] = Groups(self._ranks.__getitem__)
        self._live_on: Groups[str] = Groups(self._ranks.__getitem__)
        self._open_orders: dict[str, None] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        # Whatever an earlier life asked, its answer went to nobody: it is asked again at once.
        nodes = [_with_its_call_lost(decode(Node, r.doc)) for r in rows if r.kind == "node"]
        replicas = [
            replace(decode(Replica, r.doc), asked_at=None) for r in rows if r.kind == "replica"
        ]
        for node in sorted(nodes, key=lambda n: (n.created, n.id)):
            self._enter_node(None, node)
        for replica in sorted(replicas, key=lambda r: (r.created, r.id)):
            self._enter_replica(None, replica)

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
        return [self._nodes[i] for i in self._nodes_in.of(*phases)]

    def replicas(
        self, phases: Iterable[ReplicaPhase] | None = None, model: str | None = None
    ) -> list[Replica]:
        """Replicas, narrowed down by phase and model."""
        if model is not None:
            found = [self._replicas[i] for i in self._of_model.of(model)]
            return found if phases is None else [r for r in found if r.phase in phases]
        if phases is None:
            return list(self._replicas.values())
        return [self._replicas[i] for i in self._replicas_in.of(*phases)]

    def live_on(self, node_id: str) -> list[Replica]:
        """Replicas on the node that have not stopped."""
        return [self._replicas[i] for i in self._live_on.of(node_id)]

    def is_empty(self, node_id: str) -> bool:
        """Whether no replica lives on the node."""
        return not self._live_on.size(node_id)

    def paid_in(self, pool: str) -> int:
        """Nodes of the pool that may cost money: those that are coming or ending, too."""
        return self._paid_in.size(pool)

    def open_orders(self) -> list[Replica]:
        """Living replicas with an order that the agent has not confirmed."""
        ids = sorted(self._open_orders, key=self._ranks.__getitem__)
        return [self._replicas[i] for i in ids]

    def model_names(self) -> list[str]:
        """Models that have replicas, ended ones too."""
        return sorted(self._of_model.keys())

    def occupied(self) -> dict[str, int]:
        """GPUs in use by node id, as the replicas there claim them."""
        used: dict[str, int] = {}
        for r in self.replicas(OCCUPYING):
            if r.node_id:
                used[r.node_id] = used.get(r.node_id, 0) + r.gpus
        return used

    def put_node(self, node: Node) -> Node:
        """Adds or changes a node; a change of phase must be in the table."""
        old = self._nodes.get(node.id)
        if old is not None and old.phase is not node.phase:
            check_transition(node.id, old.phase, node.phase, NODE_TRANSITIONS, node.reason)
        if old != node:
            self._enter_node(old, node)
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
            self._enter_replica(old, replica)
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

    def forget_old(self, now: float) -> list[str]:
        """Drops what ended more than `TOMBSTONE_AGE` ago; tells the ids."""
        nodes = [n for n in self.nodes({NodePhase.GONE}) if now - n.since > TOMBSTONE_AGE]
        stopped = self.replicas({ReplicaPhase.STOPPED})
        replicas = [r for r in stopped if now - r.since > TOMBSTONE_AGE]
        for node in nodes:
            del self._nodes[node.id]
            self._nodes_in.move(node.id, node.phase, None)
            self._dirty["node", node.id] = None
        for replica in replicas:
            del self._replicas[replica.id]
            self._replicas_in.move(replica.id, replica.phase, None)
            self._of_model.move(replica.id, replica.model, None)
            self._dirty["replica", replica.id] = None
        forgotten = [*(n.id for n in nodes), *(r.id for r in replicas)]
        for key in forgotten:
            del self._ranks[key]
        return forgotten

    def changed_rows(self) -> Iterator[Row]:
        """What changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        for kind, key in dirty:
            value: Any = (self._nodes if kind == "node" else self._replicas).get(key)
            yield Row(kind, key, None if value is None else encode(value))

    def _rank(self, key: str) -> None:
        if key not in self._ranks:
            self._next_rank += 1
            self._ranks[key] = self._next_rank

    def _enter_node(self, old: Node | None, node: Node) -> None:
        self._rank(node.id)
        self._nodes[node.id] = node
        self._nodes_in.move(node.id, old.phase if old is not None else None, node.phase)
        self._paid_in.move(node.id, _paid_in(old), _paid_in(node))

    def _enter_replica(self, old: Replica | None, replica: Replica) -> None:
        self._rank(replica.id)
        self._replicas[replica.id] = replica
        self._replicas_in.move(replica.id, old.phase if old is not None else None, replica.phase)
        self._of_model.move(replica.id, old.model if old is not None else None, replica.model)
        self._live_on.move(replica.id, _lives_on(old), _lives_on(replica))
        if replica.order and not replica.taken and replica.phase in LIVE:
            self._open_orders[replica.id] = None
        else:
            self._open_orders.pop(replica.id, None)


def _with_its_call_lost(node: Node) -> Node:
    """A launch under way when the earlier life ended is a try without an answer."""
    attempts = node.attempts + node.launching
    return replace(node, asked_at=None, launching=False, attempts=attempts)


def _paid_in(node: Node | None) -> str | None:
    return node.pool if node is not None and node.phase in NODE_PAID else None


def _lives_on(replica: Replica | None) -> str | None:
    if replica is None or replica.phase not in LIVE:
        return None
    return replica.node_id or None
