"""The sections of the configuration that are about elasticd itself, not about what it serves.

Strict everywhere: an unknown key, a wrong type, a bare number for a duration is an error. A
section judges each key by itself; whatever compares two keys is a rule and stands in `rules`.
The docstring under a key is its description in the JSON schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from elasticd.option_types import SecretRef, Size, Timeout
from elasticd.settings.texts import KeyHash, Name, PathText, Url
from elasticd.settings.units import Address, HostPort
from elasticd.units import format_size

_SMALLEST_BODY = 1024


class Section(BaseModel):
    """A mapping of the file: unknown keys refused, no silent conversion, frozen."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )


def _holds_a_request(size: int) -> int:
    if size < _SMALLEST_BODY:
        raise ValueError(
            f"{format_size(size)}: every request would be refused; allowed: 1KiB or more"
        )
    return size


class ApiKey(Section):
    """One key of a client. `elasticd keygen` makes the key and the line that stands here."""

    name: Name
    """Whose key it is, as logs and figures show it."""
    hash: KeyHash
    """The SHA-256 of the key, as `sha256:` and 64 hex digits. Never the key itself."""
    max_priority: Annotated[int, Field(ge=0, le=9)] = 5
    """The highest `X-Priority` (0 to 9) that requests with this key get."""
    max_ongoing_requests: Annotated[int, Field(ge=1)] | None = None
    """How many requests of this key may run or wait at once; without it: any number."""


class Gateway(Section):
    """The entry for clients."""

    listen: HostPort = Address("127.0.0.1", 8000)
    """HOST:PORT of the OpenAI API. Other than loopback only with `api_keys`."""
    api_keys: Annotated[tuple[ApiKey, ...], Field(strict=False)] = ()
    """Who may ask. Without any key, everybody on this machine."""
    max_wait: Timeout = 300.0
    """How long a request is held while a replica comes."""
    idle_timeout: Timeout = 120.0
    """The longest silence between two tokens."""
    stall_after: Timeout = 5.0
    """The shortest silence after which a stream goes on with another replica, where it can and its
    own one usually has shorter gaps; 5 times the longest of those is waited at least."""
    first_byte_timeout: Timeout = 600.0
    """How long a replica may be silent to everybody, or a request without an answer while others
    get theirs, before it is tried elsewhere."""
    body_timeout: Timeout = 60.0
    """How long a client may take to send its body, and a second more for each KiB of it; also the
    longest silence meanwhile."""
    max_body: Annotated[Size, AfterValidator(_holds_a_request)] = 64 * 1024 * 1024
    """The largest request body; at least 1KiB."""


class Admin(Section):
    """Where commands and people reach the controller."""

    socket: PathText | None = None
    """The Unix socket of the commands; default: run/admin.sock in the state directory."""
    listen: HostPort = Address("127.0.0.1", 8701)
    """HOST:PORT of the status page, /metrics, /healthz and /readyz."""


class Ray(Section):
    """The Ray cluster: a head of our own (`head: managed`), or one that runs at `address`."""

    head: Literal["managed"] | None = None
    """`managed`: elasticd starts the head and looks after it. The default without `address`."""
    address: HostPort | None = None
    """HOST:PORT of a head that somebody else runs."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 6379
    """The port of the managed head."""

    @property
    def managed(self) -> bool:
        """Whether we run the head ourselves."""
        return self.address is None


class Agent(Section):
    """The cluster agent, which machines and the controller talk to."""

    listen: HostPort = Address("127.0.0.1", 8702)
    """HOST:PORT; on loopback, since it speaks clear text."""

    @field_validator("listen")
    @classmethod
    def _loopback(cls, value: Address) -> Address:
        if not value.is_loopback:
            raise ValueError(
                f"{value}: the agent speaks clear text; allowed: 127.0.0.1:{value.port}"
            )
        return value


class Weights(Section):
    """Where models from a hub come from, and where they lie on a node."""

    dir: PathText | None = None
    """The directory on a node; default: in the user's cache there, so that it fetches once."""
    mirror: Url = "https://huggingface.co"
    """The hub to ask, or a mirror of it."""
    token: SecretRef | None = None
    """Opens gated and private models; sent to the mirror only."""
