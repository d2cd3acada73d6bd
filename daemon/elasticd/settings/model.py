"""The configuration file as pydantic models: the whole, the pools, and the models served."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator

from elasticd.option_types import Duration, Timeout
from elasticd.settings.budget import Budget
from elasticd.settings.engine_env import EnvValue
from elasticd.settings.sections import Admin, Agent, Gateway, Ray, Section, Weights
from elasticd.settings.sources import parse_source
from elasticd.settings.texts import (
    EnvName,
    MetadataUrl,
    ModelName,
    Name,
    OptionName,
    PathText,
    Texts,
)

__all__ = ["AUTO", "CommandEngine", "Model", "NodePool", "Scaling", "Section", "Settings"]

AUTO = 0
"""`gpus_per_replica: auto`: as few GPUs as hold the model on the offering at hand."""


def _gpus(value: Any) -> int:
    if value == "auto":
        return AUTO
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if value is None:
        raise ValueError("has no value; allowed: auto, or a whole number from 1")
    shared = "an engine takes whole GPUs, tensor parallel one for each rank; "
    why = shared if isinstance(value, float) else ""
    raise ValueError(f"{str(value)[:40]} GPUs: {why}allowed: auto, or a whole number from 1")


Gpus = Annotated[
    int,
    BeforeValidator(_gpus),
    PlainSerializer(lambda gpus: gpus or "auto"),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]


class NodePool(Section):
    """Where machines may come from. Keys that are not listed here go to the provider."""

    name: Name
    """What models call it in `pools`."""
    provider: Name
    """Who rents the machines out."""
    market: Literal["spot", "on_demand", "reserved"] | None = None
    """How machines are paid for; default: as the provider does by itself."""
    accelerators: Texts = ()
    """GPU kinds that may be rented, by their usual names; empty: any."""
    max_nodes: Annotated[int, Field(ge=0)]
    """The most machines at once. 0: nothing is rented and what is there is drained."""
    boot_timeout: Timeout = 900.0
    """From the launch of a machine until it has joined."""
    gpu_timeout: Timeout = 300.0
    """How long a machine that is up may show too few GPUs before it is given up."""
    idle_timeout: Duration = 120.0
    """A machine without replicas goes back after this."""
    max_loads: Annotated[int, Field(ge=1)] = 2
    """How many engines may load at once on one machine; loading takes much memory."""
    notices: Literal["ec2", "gcp", "none"] | None = None
    """Whose metadata service the machines ask whether they will go; default: the provider's own."""
    metadata_url: MetadataUrl | None = None
    """Where the machines find that service, if not where it usually is: http://HOST[:PORT]."""
    rebalance: Literal["ignore", "replace_first", "drain"] = "replace_first"
    """What a hint that a machine is likelier to go than others leads to: nothing, a drain once it
    has been replaced, or a drain at once."""


class CommandEngine(Section):
    """Any OpenAI-compatible server. Placeholders: `{port}`, `{model}`, `{gpus}`."""

    command: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """The program and its arguments; `{port}` must be among them."""

    @field_validator("command")
    @classmethod
    def _has_port(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not any("{port}" in part for part in value):
            raise ValueError("the command must use {port}: that is where it is asked")
        return value


class Scaling(Section):
    """Bounds and targets; the counts of requests are per replica."""

    min_replicas: Annotated[int, Field(ge=0)] = 1
    """Never fewer. 0: none without requests, and the first request wakes the model."""
    max_replicas: Annotated[int, Field(ge=1)] = 1
    """Never more."""
    target_ongoing_requests: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    """Per replica; more than this, for `upscale_delay`, asks for another replica."""
    max_ongoing_requests: Annotated[int, Field(ge=1)] = 64
    """Per replica; above it requests wait in the gateway."""
    upscale_delay: Duration = 10.0
    """How long more must be wanted before there is more. From zero it is at once."""
    downscale_delay: Duration = 300.0
    """How long less must be wanted before there is less."""
    scale_to_zero_after: Duration | None = None
    """From the last request to zero replicas; with `min_replicas: 0` only, default 30m."""


class Model(Section):
    """One served model."""

    name: ModelName
    """What clients write as `model`."""
    source: str
    """`hf:REPO[@REVISION]`, `file:DIRECTORY`, or `demo:tiny`."""
    engine: Literal["vllm"] | CommandEngine = "vllm"
    """`vllm`, or `{command: [PROGRAM, …]}` for any OpenAI-compatible server."""
    engine_args: dict[OptionName, Any] = Field(default_factory=dict)
    """Options of vLLM without their dashes. Those in bytes may be sizes such as 16GiB."""
    engine_env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Added to the engine's environment: text, or the place of a secret as `{file: PATH}`."""
    gpus_per_replica: Gpus = 1
    """Tensor parallel over so many GPUs of one machine; `auto`: as few as hold the model."""
    accelerators: Texts = ()
    """GPU kinds it may run on; empty: any."""
    pools: Texts = ()
    """Where it may run; empty: in every pool."""
    scaling: Scaling = Scaling()
    """How many replicas."""
    queue_limit: Annotated[int, Field(ge=0)] = 1000
    """How many requests may wait; the next one is refused with 429."""
    fetch_timeout: Timeout = 3600.0
    """How long its weights may take to a node."""
    start_timeout: Timeout = 1200.0
    """From the order to a replica that answers, once the weights are there."""
    start_attempts: Annotated[int, Field(ge=1)] = 5
    """After so many failed starts in a row the model counts as failed; nothing is rented for it."""
    stall_timeout: Timeout = 120.0
    """How long requests may run without a single token before the replica is replaced."""
    drain_timeout: Duration = 60.0
    """What running requests get when their replica goes."""
    recovery: Literal["continue", "fail"] = "continue"
    """When a replica is lost, its streams go on with another one where they can, or end with an
    error. `continue` is for `engine: vllm`; other engines' streams end."""

    @field_validator("engine", mode="before")
    @classmethod
    def _engine_kind(cls, value: Any) -> Any:
        # Said here once, because a failed union is told as two errors about two types.
        if value == "vllm" or isinstance(value, dict | CommandEngine):
            return value if value == "vllm" else CommandEngine.model_validate(value)
        told = "has no value" if value is None else f"unknown engine {value!r}"
        raise ValueError(f"{told}; allowed: vllm, or {{command: [PROGRAM, …]}}")

    @field_validator("source")
    @classmethod
    def _source_kind(cls, value: str) -> str:
        parse_source(value)
        return value


class Settings(Section):
    """The configuration of elasticd."""

    cluster: Name
    """Marks every machine that is rented; it never changes."""
    state_dir: PathText = "/var/lib/elasticd"
    """Everything elasticd must remember; it never changes."""
    on_stop: Literal["keep", "release"] | None = None
    """The machines when elasticd is stopped; default: keep under systemd, else release."""
    gateway: Gateway = Gateway()
    """The entry for clients."""
    admin: Admin = Admin()
    """Where commands and people reach the controller."""
    ray: Ray = Ray()
    """The Ray cluster."""
    agent: Agent = Agent()
    """The cluster agent."""
    weights: Weights = Weights()
    """Models from a hub."""
    budget: Budget = Budget()
    """What the rent of machines may come to."""
    node_pools: Annotated[tuple[NodePool, ...], Field(strict=False)]
    """Where machines may come from."""
    models: Annotated[tuple[Model, ...], Field(strict=False)]
    """What is served."""
