"""What the operator wants, as plain values the core can decide on."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.memory_settings import MemorySettings
from elasticd.core.model_shape import ModelShape


@dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds and targets of one model. Delays in seconds; counts are per replica.

    `max_ongoing_requests` is the number of requests a replica runs at once: above it requests
    wait in the gateway. `scale_to_zero_after` counts from the last request and matters only
    with `min_replicas` 0.
    """

    min_replicas: int = 1
    max_replicas: int = 1
    target_ongoing_requests: float = 16.0
    max_ongoing_requests: int = 64
    upscale_delay: float = 10.0
    downscale_delay: float = 300.0
    scale_to_zero_after: float = 1800.0


@dataclass(frozen=True, slots=True)
class Engine:
    """How a replica's server is started: `vllm` by module, or a command of the operator's.

    `argv` may hold the placeholders `{port}`, `{model}` and `{gpus}`; `args` are the engine's
    own options, name and value, without dashes. `env` is added to the engine's environment.
    """

    kind: str
    argv: tuple[str, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One served model. `spec_hash` names one exact version of it.

    `start_timeout` bounds the time from the order to READY, `stall_timeout` the time in which
    requests run and no token appears, `drain_timeout` what a drained replica may still finish,
    `fetch_timeout` the time its weights may take to a node; all in seconds.

    `gpus_per_replica` 0: as few as hold the model on the offering at hand, by `shape` and `memory`.
    `weights` names what must lie on a node before the engine starts (`hf:REPO@COMMIT`; empty:
    nothing to fetch). `unresolved` says why the source is not known exactly yet: nothing is
    started or bought before it is. After `start_attempts` failed starts in a row the model counts
    as failed. `continues`: a stream whose replica is lost goes on with another one.
    """

    name: str
    source: str
    engine: Engine
    spec_hash: str
    gpus_per_replica: int
    pools: tuple[str, ...]
    scaling: Scaling
    accelerators: tuple[str, ...] = ()
    max_wait: float = 300.0
    queue_limit: int = 1000
    start_timeout: float = 1200.0
    stall_timeout: float = 120.0
    drain_timeout: float = 60.0
    fetch_timeout: float = 3600.0
    weights: str = ""
    unresolved: str = ""
    start_attempts: int = 5
    shape: ModelShape | None = None
    memory: MemorySettings = field(default_factory=MemorySettings)
    continues: bool = False


@dataclass(frozen=True, slots=True)
class NodePool:
    """Where machines may come from, with its limits. All times in seconds.

    `max_nodes` 0: nothing is bought and what is there is drained.
    `boot_timeout`: launch to joined in Ray. `gpu_timeout`: how long a machine that is up may show
    too few GPUs. `max_loads`: engines that may load at once on one node. `idle_timeout`: a node
    without replicas goes back after it. `visibility_grace`: how long a fresh instance may be
    missing from the provider's list. `loss_grace`: how long a running node may be missing from
    Ray, with no instance seen gone, before it is given up. `place`: where its machines are, in
    words: it cannot change while there are machines. `rebalance`: what a hint that a machine is
    likelier to go than others leads to: `ignore` (nothing), `replace_first` (a drain, once its
    replicas have ready replacements) or `drain` (as an interruption).
    """

    name: str
    provider: str
    max_nodes: int
    accelerators: tuple[str, ...] = ()
    boot_timeout: float = 900.0
    gpu_timeout: float = 300.0
    max_loads: int = 2
    idle_timeout: float = 120.0
    visibility_grace: float = 60.0
    guard_age: float = 30.0
    loss_grace: float = 30.0
    place: str = ""
    rebalance: str = "replace_first"


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps on the rent of machines, in millionths of `currency`; `None`: no cap.

    `rates`: what one unit of another currency is worth, in millionths of `currency`.
    """

    currency: str = "USD"
    max_per_hour: int | None = None
    max_per_day: int | None = None
    rates: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """Everything wanted, as one value: a reload replaces it as a whole."""

    cluster: str
    models: tuple[ModelSpec, ...]
    pools: tuple[NodePool, ...]
    budget: Budget = Budget()
