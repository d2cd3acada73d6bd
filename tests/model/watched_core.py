"""The real core, with somebody who reads along what it is told and what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticd.core.actions import Action, LaunchNode, Plan, TerminateNode
from elasticd.core.decide import Core
from elasticd.core.events import (
    AdoptRequested,
    Configured,
    DayTold,
    Event,
    InstancesListed,
    TerminateAnswered,
)
from elasticd.core.fleet import Row
from elasticd.core.lifecycle import NodePhase
from elasticd.core.state import State
from tests.model.books import LEDGER, Books, Known, Permit
from tests.model.cluster import Cluster
from tests.model.effects import USED

STEADY = 30.0
"""Seconds for which agent and controller must have been well for what an engine does to count."""

_STANDS_FOR = {NodePhase.REQUESTED, NodePhase.BOOTING, NodePhase.READY, NodePhase.DRAINING}


class WatchedCore(Core):
    """Tells `books` what the controller has heard from its vendors and what it wants."""

    def __init__(
        self, ledger_id: str, epoch: int, rows: Sequence[Row], books: Books, cluster: Cluster
    ) -> None:
        super().__init__(ledger_id, epoch, rows)
        self._books = books
        self._cluster = cluster
        self._began = cluster.now
        self._gone = self._ended()
        self._others: set[str] = set()
        self._pools: set[str] = set()

    @property
    def state(self) -> State:
        """Its memory."""
        return self._state

    @property
    def keeper(self) -> Any:
        """What it has told the ledger beside nodes and replicas."""
        return self._keeper

    def step(self, now: float, events: Sequence[Event]) -> Plan:
        self._pools = set(self._state.pools)
        for event in events:
            self._hear(event)
        plan = super().step(now, events)
        for reason in plan.reasons:
            self._books.tell(f"    {reason.subject}: {reason.text}")
        for action in plan.actions:
            self._check_action(action)
        self._note_decisions()
        gone = self._ended()
        for node_id in sorted(gone - self._gone):
            self._check_end(node_id)
        self._gone = gone
        return plan

    def _check_action(self, action: Action) -> None:
        """Where another ledger has machines nothing is rented, and no orphan is ended."""
        rents = isinstance(action, LaunchNode)
        ends_orphan = isinstance(action, TerminateNode) and not action.node_id
        if (rents or ends_orphan) and getattr(action, "pool", "") in self._others:
            self._books.fail(f"{action}, where another ledger has machines")

    def stands_for(self, known: Known) -> bool:
        """Whether a living node claims the machine."""
        who = known.identity
        node = self._state.fleet.node(who.node_id) if who is not None else None
        return (
            node is not None
            and who is not None
            and node.pool == who.pool
            and node.phase in _STANDS_FOR
            and node.instance_id in (None, known.machine.id)
        )

    def _hear(self, event: Event) -> None:
        match event:
            case Configured():  # a pool that is put back may be listed in the same step
                self._pools = {pool.name for pool in event.spec.pools}
            case InstancesListed() if event.pool in self._pools:
                self._books.listed(event.pool, [i.instance_id for i in event.instances])
                self._note_others(event)
            case AdoptRequested():
                self._others.clear()
            case DayTold():
                USED["the day turns"] += self._state.spend.began not in (None, event.began)
            case TerminateAnswered(gone=True):
                node = self._state.fleet.node(event.node_id)
                if node is not None:
                    self._books.denied(node.pool, event.instance_id)
            case _:
                pass

    def _note_others(self, event: InstancesListed) -> None:
        marks = {i.ledger_id for i in event.instances if i.ledger_id is not None}
        self._others.discard(event.pool)
        if marks - {LEDGER, *self._books.adopted}:
            self._others.add(event.pool)

    def _note_decisions(self) -> None:
        state = self._state
        for node in state.fleet.nodes({NodePhase.REQUESTED}):
            pool, cap = state.pools.get(node.pool), state.budget.max_per_hour
            if self._books.is_new(node.id) and pool is not None:
                most = float(pool.spec.max_nodes)
                self._books.decided(node.id, Permit(most, *(() if cap is None else (float(cap),))))
                self._check_day()

    def _check_day(self) -> None:
        """What was asked for has not used up the day's money yet when more is asked for."""
        state = self._state
        cap, began = state.budget.max_per_day, state.spend.began
        if cap is not None and began is not None:
            spent = self._books.spent(began)
            if spent > cap:
                self._books.fail(f"bought with {spent} of {cap} spent today")

    def _ended(self) -> set[str]:
        return {n.id for n in self._state.fleet.nodes({NodePhase.GONE})}

    def _check_end(self, node_id: str) -> None:
        """A node ends with its machine, unless the vendor has said so falsely."""
        known = self._books.node_of(node_id)
        node = self._state.fleet.node(node_id)
        if known is None or node is None:
            return
        told = f"{node_id} counts as gone ({node.reason}), {known.machine.id} is paid for"
        if not known.surplus:
            self._books.fail(told)
        if node.reason != "its machine is gone":
            return
        steady = min(self._cluster.now - self._began, self._cluster.now - self._cluster.well_since)
        if steady > STEADY and self._cluster.serving(node_id, STEADY):
            self._books.fail(f"{told} and serves")
