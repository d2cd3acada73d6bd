"""Facts that happened. Everything the core knows arrives as one of these.

Frozen, made of JSON-able parts only (`core.codec`), no NaN and no infinity. Times of the
controller's own clock are not in events: an event holds at the `now` of the step it is given to;
other hosts' times come as ages or remaining seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.gateway_events import DemandSampled as DemandSampled
from elasticd.core.gateway_events import EndpointBroken as EndpointBroken
from elasticd.core.gateway_events import GatewayBegan as GatewayBegan
from elasticd.core.gateway_events import LoadSampled as LoadSampled
from elasticd.core.gateway_events import ReplicaLoad as ReplicaLoad
from elasticd.core.gateway_events import RequestsMoved as RequestsMoved
from elasticd.core.specs import FleetSpec
from elasticd.provider import Instance, Offering


@dataclass(frozen=True, slots=True)
class Configured:
    """The operator's wishes, at start and after each reload.

    `retry_failed`: an operator asked for it, so models and pools that have failed get another
    chance. `changed`: the paths of the configuration that are new, for the record.
    """

    spec: FleetSpec
    retry_failed: bool = False
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferingsListed:
    """A pool's complete list of offerings."""

    pool: str
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True)
class InstancesListed:
    """A pool's complete list of instances of our cluster name.

    `took` seconds passed between asking and this event: a machine launched meanwhile says nothing
    by its absence.
    """

    pool: str
    instances: tuple[Instance, ...]
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class ListFailed:
    """A provider did not answer a listing: nothing is known, which is not "nothing is there"."""

    pool: str
    what: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class LaunchAnswered:
    """The provider gave a machine for the node."""

    node_id: str
    instance: Instance


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The provider refused (`definite`), or gave no clear answer: the same launch is repeated.

    `error` is the class name of the `ProviderError`.
    """

    node_id: str
    error: str
    message: str
    definite: bool
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class TerminateAnswered:
    """Ending is under way (`gone` false), or no such instance exists any more (`gone` true)."""

    node_id: str
    instance_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class TerminateFailed:
    """The provider did not end it; asked again after a while."""

    node_id: str
    instance_id: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class NoticeSeen:
    """A notice that holds for a machine, as its own watcher hears it.

    `kind`: `interruption`, `rebalance` or `maintenance`. `seconds_left` `None`: nobody knows when.
    """

    notice_id: str
    kind: str
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One node as the cluster agent sees it. `alive` `None`: not known.

    `gpus` is what Ray counts on it; `boot` the watcher's last boot phase. `held`: one sentence
    for each GPU that cannot be used because something still holds it. `mismatch`: its versions of
    Ray, Python or vLLM differ from the head's, in one sentence; it has not joined and will not.
    `notices`: those that the machine itself hears; `notices_complete`: no other one of them holds.
    """

    node_id: str
    alive: bool | None
    gpus: int = 0
    boot: str = ""
    log_tail: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    mismatch: str = ""
    notices: tuple[NoticeSeen, ...] = ()
    notices_complete: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """One replica as the cluster agent sees it.

    `phase` is `fetching` (its weights, before the engine), `starting`, `ready`, `stopped` or
    `unknown`; `stalled_for` the seconds in which
    requests ran without a token (`None`: idle or not known); `url` is where it answers.
    `unordered`: its actor is there, but the order to start may have been lost with an agent.
    `answers`: it answered when it was last asked, and that was a moment ago.
    """

    replica_id: str
    incarnation: int
    node_id: str
    phase: str
    url: str = ""
    load_phase: str = ""
    stalled_for: float | None = None
    error: str = ""
    log_tail: tuple[str, ...] = ()
    unordered: bool = False
    answers: bool = True


@dataclass(frozen=True, slots=True)
class ClusterObserved:
    """What the agent reports. Absence of a node or replica counts only with `complete`.

    `complete` is false while the agent cannot see the head, or has just started and has not yet
    gathered the replicas that live.
    """

    nodes: tuple[NodeSeen, ...]
    replicas: tuple[ReplicaSeen, ...]
    complete: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """The agent does not answer: nothing is known of nodes and replicas."""

    message: str


@dataclass(frozen=True, slots=True)
class ReplicaOrderFailed:
    """A start or stop order did not reach the agent or was refused (`definite`)."""

    replica_id: str
    incarnation: int
    order: str
    message: str
    definite: bool


@dataclass(frozen=True, slots=True)
class ReplicaOrderTaken:
    """The agent has taken a start or stop order; what becomes of it is in later observations."""

    replica_id: str
    incarnation: int
    order: str


@dataclass(frozen=True, slots=True)
class NoticeArrived:
    """An instance will go in `seconds_left`; `None`, of a rebalance hint: nobody knows when."""

    notice_id: str
    pool: str
    instance_id: str
    kind: str
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class NoticeTakenBack:
    """A notice no longer holds."""

    notice_id: str
    pool: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class DownRequested:
    """Give everything back and buy nothing more."""

    by: str


@dataclass(frozen=True, slots=True)
class ServeRequested:
    """Serve (again): takes a `DownRequested` back. A restart after a crash does not say this."""

    by: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Take a node out of service within `seconds`, as for a notice."""

    node_id: str
    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class UndrainRequested:
    """Takes a `DrainRequested` back; a notice of the provider still holds."""

    node_id: str
    by: str


@dataclass(frozen=True, slots=True)
class ScaleHeld:
    """Keep a model at `replicas`, for `seconds` (`None`: until `HoldReleased`).

    Also gives a model that counts as failed another chance.
    """

    model: str
    replicas: int
    seconds: float | None
    by: str


@dataclass(frozen=True, slots=True)
class HoldReleased:
    """The autoscaler decides again."""

    model: str
    by: str


@dataclass(frozen=True, slots=True)
class AdoptRequested:
    """Machines that another ledger of the same cluster name left behind are ours from now on."""

    ledger_id: str
    by: str


@dataclass(frozen=True, slots=True)
class DayTold:
    """The day of the budget: began at, ends at, in seconds of the controller's wall clock."""

    began: float
    ends: float


@dataclass(frozen=True, slots=True)
class BootLogRead:
    """The end of what a machine printed while it came up; empty lines: nothing is known."""

    node_id: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrillRequested:
    """A node's machine is to be taken as its market would, at once or `notice` seconds after a
    notice. For the record only: what becomes of it is heard as of any other preemption."""

    node_id: str
    notice: float | None
    by: str


@dataclass(frozen=True, slots=True)
class ReloadRefused:
    """A new configuration was not taken; what holds stays. For the record only."""

    problem: str
    by: str


Event = (
    Configured
    | OfferingsListed
    | InstancesListed
    | ListFailed
    | LaunchAnswered
    | LaunchFailed
    | TerminateAnswered
    | TerminateFailed
    | ClusterObserved
    | ClusterUnreachable
    | ReplicaOrderFailed
    | ReplicaOrderTaken
    | DemandSampled
    | LoadSampled
    | RequestsMoved
    | GatewayBegan
    | EndpointBroken
    | NoticeArrived
    | NoticeTakenBack
    | DownRequested
    | ServeRequested
    | DrainRequested
    | UndrainRequested
    | ScaleHeld
    | HoldReleased
    | AdoptRequested
    | DayTold
    | BootLogRead
    | DrillRequested
    | ReloadRefused
)
