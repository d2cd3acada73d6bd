"""Nodes and replicas as frozen values, and the ledger's rows they are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.core.gateway_events import RequestsMoved
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.provider import Offering


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the ledger; `doc` `None` deletes it."""

    kind: str
    id: str
    doc: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Hint:
    """A machine is likelier to go than others; `ends_at` on the controller's clock, if known."""

    notice_id: str
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """Our commitment to one machine. Times are the controller's clock, in seconds.

    `offerings`: what was asked for; `offering`: what we got. `gpus`: what Ray counts, 0 until it
    joined. `trouble`: why the last call for it failed.

    `asked_at`: when the outstanding provider call was asked; `retry_at`: when to ask
    again; `launched_at`: the last time a launch was asked, or ended without a clear answer;
    `launching`: a launch is under way. `listed`: a provider's list has shown
    it; `unseen_since`/`unseen_lists`: complete lists lack it since then, so many in a row.
    `not_found_at`: the provider said so when its end was asked for, and no list has shown it since.
    `dead_since`: Ray says it is dead. `gpuless_since`: it is up, with fewer GPUs than it should
    have. `held`: one sentence for each GPU that something still holds. `idle_since`: no replica.
    `cut_at`: when a drain must be over. `notices`: ids of the notices that hold. `hints`: what its
    pool answers with a replacement first, or not at all. `weights`: what has been fetched to it.
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
    launching: bool = False
    attempts: int = 0
    listed: bool = False
    unseen_since: float | None = None
    unseen_lists: int = 0
    not_found_at: float | None = None
    dead_since: float | None = None
    gpuless_since: float | None = None
    held: tuple[str, ...] = ()
    idle_since: float | None = None
    cut_at: float | None = None
    notices: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    weights: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()

    @property
    def usable_gpus(self) -> int:
        """GPUs that an engine could be given."""
        return self.expected_gpus - len(self.held)

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
    connection broke. `stop_at`: the end of its drain. `fetching`: its weights are on their way;
    `loading_since`: they are there, and the engine starts since then. `gpus` 0: as many as the
    node it gets asks for.
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
    fetching: bool = False
    loading_since: float | None = None
    stop_at: float | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Departure:
    """One node's going. Times are the controller's clock, in seconds.

    `models`: those that it served; `replicas`: that did, and whose requests are counted. `notice`:
    seconds from its beginning to its end, `None` where it went without. `ended_at`: its machine was
    told to end, or is gone. `whole_at`: all models had as many ready replicas as they should.
    `back`: it was taken back before its end. `partial`: the gateway began anew meanwhile, so there
    were more requests than are counted. `counted`: what the gateway has counted of each replica,
    until it was taken back; `before`: that of an earlier departure of the node.
    """

    node_id: str
    began: float
    why: str
    models: tuple[str, ...]
    replicas: tuple[str, ...]
    notice: float | None = None
    ended_at: float | None = None
    whole_at: float | None = None
    back: bool = False
    partial: bool = False
    before: tuple[RequestsMoved, ...] = ()
    counted: tuple[RequestsMoved, ...] = ()
