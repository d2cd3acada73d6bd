"""The provider contract: everything a module that rents machines must know of us.

A provider module imports this file and its vendor's library, and nothing else of elasticd.
Vendor exceptions stop at the adapter: what leaves a provider is one of the error classes
below, and *the class is the retry policy*.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


class Market(enum.StrEnum):
    """How a machine is paid for, and therefore how it can be lost."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Offering:
    """Something that could be rented. Sold-out offerings are listed too, with `available=False`.

    `price_micros` is the worst-case price per hour in millionths of `currency`.
    `gpu_memory_mib` is the memory of one GPU as its driver reports it, where the provider knows.
    """

    pool: str
    zone: str
    machine_type: str
    gpu_kind: str
    gpu_count: int
    market: Market
    price_micros: int
    currency: str = "USD"
    available: bool = True
    gpu_memory_mib: int | None = None

    @property
    def id(self) -> str:
        """Names the offering across listings; price and stock may change under it."""
        return f"{self.pool}/{self.zone}/{self.machine_type}/{self.market.value}"


class InstanceState(enum.StrEnum):
    """What the provider says of a machine. `UNKNOWN` is never read as gone."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine a provider reports to exist, tied to a Node by tag or name.

    `node_id` and `ledger_id` are `None` where the provider does not (yet) show them.
    `address` is where the gateway's host reaches the machine, once known.
    `launched_at` is the provider's wall clock in seconds, if it tells.
    """

    instance_id: str
    node_id: str | None
    ledger_id: str | None
    state: InstanceState
    offering: Offering | None = None
    address: str | None = None
    launched_at: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One machine, please; any of `offerings`, in order of preference.

    Asking again with the same `node_id` answers with the machine of the first time.
    `bootstrap` is a POSIX shell script that the machine runs once as it comes up.
    """

    node_id: str
    cluster: str
    ledger_id: str
    offerings: tuple[Offering, ...]
    bootstrap: str


class NoticeKind(enum.StrEnum):
    """Why an instance will go."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class PreemptionNotice:
    """An instance will go in `seconds_left`; its id is made from the content: repeats are equal.

    `None` is for a `REBALANCE` only: nobody knows when, or whether.
    """

    notice_id: str
    instance_id: str
    kind: NoticeKind
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class NoticeWithdrawn:
    """A notice no longer holds."""

    notice_id: str
    instance_id: str


class ProviderError(Exception):
    """Root of what may leave a provider. The message is for people: what, where, what to do."""


class NoCapacity(ProviderError):
    """The offering is sold out now: set it aside for a while, choose again."""


class QuotaExceeded(ProviderError):
    """The account may not have more of this family."""


class PriceTooHigh(ProviderError):
    """The market asks more than the pool allows."""


class RateLimited(ProviderError):
    """Asked too often; the same call works after `after` seconds (`None`: not told)."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Unavailable(ProviderError):
    """The provider did not answer or is in conflict: outcome unknown, the same call later."""


class AuthFailed(ProviderError):
    """The credentials were refused."""


class BillingBlocked(ProviderError):
    """The account cannot pay."""


class Rejected(ProviderError):
    """The request is wrong and stays wrong: the pool is misconfigured."""


class InstanceNotFound(ProviderError):
    """The instance does not exist (any more)."""


class Provider(Protocol):
    """Rents machines and gives them back. All methods may be cancelled at any await."""

    async def offerings(self) -> Sequence[Offering]:
        """What could be rented in this pool, sold-out offerings included."""

    async def launch(self, request: LaunchRequest) -> Instance:
        """Idempotent by `request.node_id`, also across a crash of the caller.

        Where the machine of an earlier call has ended meanwhile: that machine as `STOPPING` while
        it is still known, or `InstanceNotFound`; never a second one.
        """

    async def terminate(self, instance_id: str) -> None:
        """Returns when ending is under way; raises `InstanceNotFound` when it is done."""

    async def instances(self) -> Sequence[Instance]:
        """Every machine of our cluster name in this pool, of any ledger id."""

    async def aclose(self) -> None:
        """Lets go of connections; machines stay."""


@runtime_checkable
class NoticeSource(Protocol):
    """Optional: a provider that hears of preemptions."""

    def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]: ...


@runtime_checkable
class Reclaimable(Protocol):
    """Optional: a provider whose machines can be taken away as a drill."""

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        """Takes the machine as the market would: at once, or `notice` seconds after a notice."""


@runtime_checkable
class BootLog(Protocol):
    """Optional: a provider that can show what a machine printed while it came up."""

    async def boot_log(self, instance_id: str) -> str:
        """The end of it, a few KiB at most; empty where nothing is known.

        Also for a while after the machine has ended: that is when people want to read it.
        """


@dataclass(frozen=True, slots=True)
class PoolContext:
    """What a provider is told about the pool it serves.

    `state_dir` is a directory of its own for this pool, 0700, kept across restarts.
    """

    pool: str
    cluster: str
    ledger_id: str
    state_dir: Path
    market: Market | None = None
    accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderPlugin:
    """What the entry-point group `elasticd.providers` holds under a provider's name.

    `options` is a pydantic model class of the pool's own keys (unknown keys refused).
    `defaults`: `instances_every` and `offerings_every` in seconds; `paid`: false where machines
    cost nothing; `notices`: whose metadata service its machines can ask whether they will go
    (`ec2`, `gcp`; without it: none).
    `place` names the options that say where the machines are (account, region, address): they
    cannot change while there are machines. `visibility`, given the options: seconds for which a
    new machine may be missing from lists (`None`: a minute).
    `check_access`, given the options, asks the provider who we are, without renting anything, and
    says it in a sentence; it raises `ProviderError`.
    """

    options: type[Any]
    create: Callable[[PoolContext, Any], Provider]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    check_access: Callable[[Any], Awaitable[str]] | None = None
    place: tuple[str, ...] = ()
    visibility: Callable[[Any], float] | None = None
