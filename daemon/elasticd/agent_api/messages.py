"""What the cluster agent and its callers say to each other; version 1 of the wire.

Level-triggered: `ClusterState` is the whole truth the agent has, commands are idempotent by
replica id and incarnation. Readers ignore unknown keys and writers keep old ones, so that
versions N and N−1 understand each other during a rolling upgrade. No ray in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from elasticd.node.versions import WIRE

PROTOCOL = WIRE

WAITING_FOR_ORDER = "waiting for its order"
"""Load phase of an actor that was made and has not been told yet what to run."""


class _Wire:
    """Frozen dataclasses that read and write plain JSON objects."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: _frozen(v) for k, v in data.items() if k in known})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class ReplicaOrder(_Wire):
    """Start this replica. The same order again (id and incarnation) changes nothing.

    `engine_kind` is `vllm` (started by module with the node's own Python, model directory or name
    in `model_path`, options in `engine_args`) or `command` (`engine_argv` with the placeholders
    `{port}`, `{model}`, `{gpus}`). `key` opens the engine's guard and reaches it by environment
    only. `host` is the address the engine listens on; the port is chosen from `port_min..port_max`.

    `weights` (`hf:REPO@COMMIT`, empty: none) is fetched to the node's weights directory first,
    within `fetch_timeout` seconds and with `fetch_env` (mirror, token) in the fetcher's
    environment; `model_path` is then ignored, the fetched directory takes its place.
    """

    replica_id: str
    incarnation: int
    node_id: str
    model: str
    spec_hash: str
    gpus: int
    model_path: str
    engine_kind: str
    key: str
    host: str
    engine_argv: tuple[str, ...] = ()
    engine_args: tuple[tuple[str, str], ...] = ()
    engine_env: tuple[tuple[str, str], ...] = ()
    port_min: int = 20000
    port_max: int = 20999
    start_timeout: float = 1200.0
    weights: str = ""
    fetch_timeout: float = 3600.0
    fetch_env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaReport(_Wire):
    """One replica as its actor tells it.

    `phase`: `fetching` (its weights, before the engine), `starting`, `ready`, `stopping`,
    `stopped`, or `unknown` (the actor did not answer; the other fields are then the last known).
    `load_phase`: what a fetching or starting replica is doing, with progress where it is known.
    `gpu_ids`: the devices Ray gave, as the engine process sees them. `stalled_for`: seconds in
    which requests ran and no token appeared, `None` when idle or not known. `age`: seconds since
    the actor last answered. `stderr_tail`: the engine's last lines. `unordered`: the agent found
    it made, but cannot tell that it ever got its order: give it again. `holding`: it is over, but
    its actor lives on and keeps its GPUs from being given to others, since something still uses
    them; one sentence for each. `answers`: its engine answered the last health check.
    """

    replica_id: str
    incarnation: int
    node_id: str
    model: str
    spec_hash: str
    phase: str
    url: str = ""
    load_phase: str = ""
    gpu_ids: tuple[str, ...] = ()
    running: int | None = None
    waiting: int | None = None
    generated_tokens: int | None = None
    stalled_for: float | None = None
    since_start: float = 0.0
    age: float = 0.0
    error: str = ""
    stderr_tail: tuple[str, ...] = ()
    unordered: bool = False
    holding: tuple[str, ...] = ()
    answers: bool = True


@dataclass(frozen=True, slots=True)
class NoticeReport(_Wire):
    """A machine will go, or may: its own cloud has told it.

    `notice_id` is made from the content, so repeats are equal. `kind`: `interruption`, `rebalance`
    or `maintenance`. `seconds_left`: from the moment of the report; `None`: nobody knows when.
    """

    notice_id: str
    kind: str
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class NodeReport(_Wire):
    """One machine as Ray and its watcher tell it.

    `alive`: Ray's word; a machine that is not in Ray is not alive there. `None` while the head
    does not answer, or knows nothing of a machine that has just said to be up. `boot`: the
    watcher's last phase (`joining`, `waiting for GPUs: …`, `starting ray`, `up`, `joining again:
    …`, `failed: …`). `watcher_age`: seconds since its last report, `None` if it never reported.
    `held`: one sentence for each GPU that cannot be used because something still holds it (with
    the pid); it is claimed in Ray until it is free. `mismatch`: why it was not let in, since its
    versions differ from the head's; it has not joined Ray and will not. `notices`: those that hold,
    as the machine itself hears them; `notices_complete`: no other one holds, which is not known of
    a machine that listens to nothing or has just begun to.
    """

    node_id: str
    alive: bool | None
    ray_node_id: str = ""
    address: str = ""
    gpus: int = 0
    boot: str = ""
    watcher_age: float | None = None
    log_tail: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    mismatch: str = ""
    notices: tuple[NoticeReport, ...] = ()
    notices_complete: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState(_Wire):
    """Everything one agent knows. `incarnation` is new with each agent start, `version` grows.

    `complete`: the head answers and all living replicas have been gathered, so that absence
    from the lists means absence. `detail` says in words what is wrong, if anything.
    """

    incarnation: str
    version: int
    complete: bool
    head_alive: bool
    nodes: tuple[NodeReport, ...] = ()
    replicas: tuple[ReplicaReport, ...] = ()
    detail: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    protocol: int = PROTOCOL

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ClusterState:
        """Reads nested reports too. Raises `ValueError` on what is not a cluster state."""
        try:
            return cls(
                incarnation=str(data["incarnation"]),
                version=int(data["version"]),
                complete=bool(data["complete"]),
                head_alive=bool(data["head_alive"]),
                nodes=tuple(_node_report(n) for n in data.get("nodes", ())),
                replicas=tuple(ReplicaReport.from_json(r) for r in data.get("replicas", ())),
                detail=str(data.get("detail", "")),
                versions=dict(data.get("versions", {})),
                protocol=int(data.get("protocol", 1)),
            )
        except (KeyError, TypeError) as bad:
            raise ValueError(f"not a cluster state: {bad!r}") from bad


def _node_report(data: Mapping[str, Any]) -> NodeReport:
    plain = NodeReport.from_json({k: v for k, v in data.items() if k != "notices"})
    return replace(plain, notices=tuple(NoticeReport.from_json(n) for n in data.get("notices", ())))


@dataclass(frozen=True, slots=True)
class JoinRequest(_Wire):
    """A fresh machine's first word to the agent, with its single-use join token.

    `nonce`: the machine's own random word; with it the same machine may ask again when the
    answer was lost. `versions`: what it runs, by name; what is missing is not known.
    """

    node_id: str
    token: str
    nonce: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinAnswer(_Wire):
    """What the machine needs to start Ray and to report.

    `refused`: it must not join, and this is why; the way into Ray is then empty. Only machines
    that tell their versions are refused so, and they know this field.
    """

    ray_address: str
    ray_token: str
    report_token: str
    ray_env: Mapping[str, str]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class WatcherReport(_Wire):
    """What a node watcher tells: its boot phase, the end of its log, the versions it runs, and the
    notices that hold (`notices_complete`: and no other)."""

    boot: str
    log_tail: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[NoticeReport, ...] = ()
    notices_complete: bool = False
