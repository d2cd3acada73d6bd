"""Everything the core remembers, and the sheet on which one step writes what it decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticd.core.actions import Action, Reason
from elasticd.core.demand import Demand
from elasticd.core.events import RequestsMoved
from elasticd.core.fleet import Fleet, Node, Replica
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.pool_state import PoolState
from elasticd.core.records import Departure
from elasticd.core.scaling import ReplicaTarget
from elasticd.core.specs import Budget, ModelSpec
from elasticd.core.spend import Spend, settle


class Step:
    """One step's sheet: the time, what to do, why, and when to look again.

    `committed`: what all that is paid for costs per hour, once somebody has summed it up.
    `left_service`: nodes that were READY before.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.actions: list[Action] = []
        self.reasons: list[Reason] = []
        self.wake: float | None = None
        self.committed: int | None = None
        self.left_service: list[str] = []

    def act(self, action: Action) -> None:
        """Adds an intention."""
        self.actions.append(action)

    def because(self, subject: str, text: str) -> None:
        """Adds a sentence about something that changed."""
        self.reasons.append(Reason(subject, text))

    def due(self, at: float) -> bool:
        """Whether `at` has come; if not, the plan wakes then."""
        if self.now >= at:
            return True
        self.wake = at if self.wake is None else min(self.wake, at)
        return False


@dataclass(frozen=True, slots=True)
class Hold:
    """An operator keeps a model at `replicas` until a time (`None`: until released)."""

    replicas: int
    until: float | None
    by: str


@dataclass(slots=True)
class ModelState:
    """What is known of one model. `failures` in a row to start; no new start before `retry_at`.

    `remembered`: the target that an earlier life had set. `failed_at`: the last failed start.
    `unplaced`: a replica found neither room nor anything to rent; `blocked` says why. `no_room`:
    and it is known that there is nothing to rent, at least for now. `room_made_at`: when a replica
    of an older spec last made room. `last_tail`: the last lines of the engine that failed last.
    `blamed`: the latest failures by node, and when: if the node turns out to be lost, it was that.
    `lost`: the latest loss of a replica that served, while it has not been made good.
    """

    spec: ModelSpec
    demand: Demand
    target: ReplicaTarget | None = None
    remembered: int | None = None
    hold: Hold | None = None
    failures: int = 0
    retry_at: float = 0.0
    failed_at: float = 0.0
    last_cause: str = ""
    last_tail: tuple[str, ...] = ()
    unplaced: bool = False
    no_room: bool = False
    room_made_at: float | None = None
    blocked: str = ""
    blamed: dict[str, tuple[int, float]] = field(default_factory=dict)
    lost: str = ""

    @property
    def failed(self) -> bool:
        """Whether so many starts failed in a row that nothing more is tried or bought for it."""
        return self.failures >= self.spec.start_attempts

    def give_another_chance(self) -> None:
        """Forgets the failures."""
        self.failures, self.retry_at, self.last_cause, self.last_tail = 0, 0.0, "", ()
        self.blamed = {}


@dataclass(slots=True)
class State:
    """The core's memory. Only `decide.Core.step` and what it calls write to it.

    `saved_models`, `saved_pools`: what an earlier life knew of each. `usual`: how long a boot, a
    fetch or a start usually takes, in seconds. `seen`: when each node and replica was last
    reported. `adopted`: ledgers whose machines are ours, who said so, and when. `departures`: of
    nodes that served, by node id; `moved`: what became of requests, by replica id.
    `epoch`: which life this is; `began`: when it did.
    """

    ledger_id: str
    fleet: Fleet
    cluster: str = ""
    models: dict[str, ModelState] = field(default_factory=dict)
    pools: dict[str, PoolState] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    spend: Spend = field(default_factory=Spend)
    epoch: int = 0
    began: float | None = None
    adopted: dict[str, tuple[str, float]] = field(default_factory=dict)
    saved_models: dict[str, dict[str, Any]] = field(default_factory=dict)
    saved_pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    loads_at: float | None = None
    departures: dict[str, Departure] = field(default_factory=dict)
    moved: dict[str, RequestsMoved] = field(default_factory=dict)
    strays: dict[str, float] = field(default_factory=dict)
    cluster_seen_at: float | None = None
    cluster_complete: bool = False
    cluster_detail: str = ""
    agent_away_since: float | None = None
    down: str = ""
    down_since: float = 0.0

    def is_ours(self, ledger_id: str) -> bool:
        """Whether machines with this mark may be used and ended."""
        return ledger_id in self._ledgers()

    def minted(self, key: str) -> bool:
        """Whether a node's or replica's id was given by this ledger or an adopted one."""
        return key.partition("-")[2].startswith(tuple(i[:8] for i in self._ledgers()))

    def _ledgers(self) -> tuple[str, ...]:
        return (self.ledger_id, *self.adopted)

    def node_to(self, step: Step, node: Node, phase: NodePhase, reason: str, **more: Any) -> Node:
        """Moves a node on and says why."""
        step.because(f"node:{node.id}", f"{node.phase.value} → {phase.value}: {reason}")
        if node.phase is NodePhase.READY:
            step.left_service.append(node.id)
        if phase is NodePhase.GONE:
            settle(self, node, step.now)
        return self.fleet.move_node(node, phase, step.now, reason, **more)

    def replica_to(
        self, step: Step, replica: Replica, phase: ReplicaPhase, why: str, **more: Any
    ) -> Replica:
        """Moves a replica on and says why."""
        step.because(
            f"replica:{replica.id}",
            f"{replica.model}: {replica.phase.value} → {phase.value}: {why}",
        )
        return self.fleet.move_replica(replica, phase, step.now, **more)

    def forget(self, key: str) -> None:
        """A node or replica of this id is listed no more."""
        self.seen.pop(key, None)
        self.departures.pop(key, None)
        self.moved.pop(key, None)

    def took(self, what: str, seconds: float) -> None:
        """One more measurement of a duration; the latest ones count most."""
        before = self.usual.get(what)
        self.usual[what] = seconds if before is None else before + 0.3 * (seconds - before)


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row: doubling, bounded."""
    return min(first * 2.0 ** min(max(failures - 1, 0), 20), longest)
