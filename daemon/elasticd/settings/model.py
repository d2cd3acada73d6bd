"""The configuration file as pydantic models: what keys there are and what each may hold.

Strict everywhere: an unknown key, a wrong type, a bare number for a duration is an error. Rules
that span sections stand in `Settings`; what needs the file system or a provider is in `load`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from elasticd.settings.paths import known_home
from elasticd.settings.units import Address, Duration, HostPort, Timeout

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$")]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
OptionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")]


def _plain_text(value: Any) -> Any:
    """YAML reads `1` as a number where an environment means the text `1`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


EnvText = Annotated[str, BeforeValidator(_plain_text)]
PathText = Annotated[str, AfterValidator(known_home)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Section(BaseModel):
    """A mapping of the file: unknown keys refused, no silent conversion, frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Gateway(Section):
    """The entry for clients. `max_wait` holds a request while capacity comes."""

    listen: HostPort = Address("127.0.0.1", 8000)
    max_wait: Timeout = 300.0
    idle_timeout: Timeout = 120.0

    @field_validator("listen")
    @classmethod
    def _loopback(cls, value: Address) -> Address:
        if not value.is_loopback:
            raise ValueError(
                f"{value} is reachable from outside and the gateway has no API keys yet; "
                f"listen on 127.0.0.1:{value.port} and put an authenticating proxy in front"
            )
        return value


class Admin(Section):
    """Where commands and people reach the controller. `socket` default: in the state directory."""

    socket: PathText | None = None
    listen: HostPort = Address("127.0.0.1", 8701)


class Ray(Section):
    """The Ray cluster: our own head on `port` (`head: managed`), or one that runs at `address`."""

    head: Literal["managed"] | None = None
    address: HostPort | None = None
    port: Annotated[int, Field(ge=1024, le=65535)] = 6379

    @model_validator(mode="after")
    def _one_head(self) -> Self:
        if self.head is not None and self.address is not None:
            raise ValueError("give either `head: managed` or the `address` of a running head")
        return self

    @property
    def managed(self) -> bool:
        """Whether we run the head ourselves."""
        return self.address is None


class Agent(Section):
    """The cluster agent, which machines and the controller talk to."""

    listen: HostPort = Address("127.0.0.1", 8702)

    @field_validator("listen")
    @classmethod
    def _loopback(cls, value: Address) -> Address:
        if not value.is_loopback:
            raise ValueError(f"{value}: the agent speaks clear text; use 127.0.0.1:{value.port}")
        return value


class NodePool(Section):
    """Where machines may come from. Keys that are not listed here go to the provider."""

    name: Name
    provider: Name
    market: Literal["spot", "on_demand", "reserved"] | None = None
    accelerators: Texts = ()
    max_nodes: Annotated[int, Field(ge=1)]
    boot_timeout: Timeout = 900.0
    idle_timeout: Duration = 120.0


class CommandEngine(Section):
    """Any OpenAI-compatible server. Placeholders: `{port}`, `{model}`, `{gpus}`."""

    command: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]

    @field_validator("command")
    @classmethod
    def _has_port(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not any("{port}" in part for part in value):
            raise ValueError("the command must use {port}: that is where it is asked")
        return value


class Scaling(Section):
    """Bounds and targets; the counts of requests are per replica."""

    min_replicas: Annotated[int, Field(ge=0)] = 1
    max_replicas: Annotated[int, Field(ge=1)] = 1
    target_ongoing_requests: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    max_ongoing_requests: Annotated[int, Field(ge=1)] = 64
    upscale_delay: Duration = 10.0
    downscale_delay: Duration = 300.0
    scale_to_zero_after: Duration | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas {self.min_replicas} > max_replicas {self.max_replicas}")
        if self.target_ongoing_requests > self.max_ongoing_requests:
            raise ValueError(
                f"target_ongoing_requests {self.target_ongoing_requests:g} can never be reached "
                f"above max_ongoing_requests {self.max_ongoing_requests}"
            )
        if self.scale_to_zero_after is not None and self.min_replicas > 0:
            raise ValueError("scale_to_zero_after works with min_replicas: 0 only")
        return self


class Model(Section):
    """One served model. `pools` empty: any pool."""

    name: ModelName
    source: str
    engine: Literal["vllm"] | CommandEngine = "vllm"
    engine_args: dict[OptionName, Any] = Field(default_factory=dict)
    engine_env: dict[EnvName, EnvText] = Field(default_factory=dict)
    gpus_per_replica: Annotated[int, Field(ge=1)] = 1
    accelerators: Texts = ()
    pools: Texts = ()
    scaling: Scaling = Scaling()
    queue_limit: Annotated[int, Field(ge=0)] = 1000
    start_timeout: Timeout = 1200.0
    stall_timeout: Timeout = 120.0
    drain_timeout: Duration = 60.0

    @field_validator("engine", mode="before")
    @classmethod
    def _engine_kind(cls, value: Any) -> Any:
        # Said here once, because a failed union is told as two errors about two types.
        if value == "vllm" or isinstance(value, dict | CommandEngine):
            return value if value == "vllm" else CommandEngine.model_validate(value)
        raise ValueError(f"unknown engine {value!r}; allowed: vllm, or {{command: [PROGRAM, …]}}")

    @field_validator("source")
    @classmethod
    def _source_kind(cls, value: str) -> str:
        kind, _, rest = value.partition(":")
        if not (kind == "file" and rest) and value != "demo:tiny":
            raise ValueError(f"unknown source {value!r}; allowed: file:DIRECTORY, demo:tiny")
        if kind == "file":
            known_home(rest)
        return value

    @model_validator(mode="after")
    def _args_reach_someone(self) -> Self:
        if self.engine_args and self.engine != "vllm":
            raise ValueError("engine_args belong to `engine: vllm`; put options into the command")
        return self


class Settings(Section):
    """The whole file."""

    cluster: Name
    state_dir: PathText = "/var/lib/elasticd"
    on_stop: Literal["keep", "release"] | None = None
    gateway: Gateway = Gateway()
    admin: Admin = Admin()
    ray: Ray = Ray()
    agent: Agent = Agent()
    node_pools: Annotated[tuple[NodePool, ...], Field(strict=False)]
    models: Annotated[tuple[Model, ...], Field(strict=False)]
