"""What a controller is told at start and by a reload; made from the settings by `elasticd.app`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from elasticd.core.specs import FleetSpec
from elasticd.provider import Market, ProviderPlugin
from elasticd.runtime.call_limits import CallLimits
from elasticd.runtime.cluster_watch import PollTimes
from elasticd.runtime.hub_api import Hub
from elasticd.runtime.ledger import JournalLimits
from elasticd.runtime.observer import WatchPeriods
from elasticd.runtime.orders import EnginePorts
from elasticd.settings.day_start import DayStart
from elasticd.settings.reload import Reload
from elasticd.settings.sources import Resolved


@dataclass(frozen=True, slots=True)
class Listening:
    """Whose metadata service a pool's machines ask for notices (`ec2`, `gcp`; empty: nobody's), and
    where it is (empty: where it usually is)."""

    source: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One pool's provider. `options` is an instance of `plugin.options`.

    Without `periods` the plugin's `defaults` may set `instances_every` and `offerings_every`, in
    seconds: how often a provider may be asked is the provider's own matter.
    """

    plugin: ProviderPlugin
    options: Any
    market: Market | None = None
    periods: WatchPeriods | None = None
    limits: CallLimits = field(default_factory=CallLimits)
    listening: Listening = Listening()

    @property
    def watch_periods(self) -> WatchPeriods:
        """How often this pool is listed."""
        if self.periods is not None:
            return self.periods
        usual, own = WatchPeriods(), self.plugin.defaults
        return WatchPeriods(
            instances=float(own.get("instances_every", usual.instances)),
            offerings=float(own.get("offerings_every", usual.offerings)),
        )


class Wishes(Protocol):
    """The configuration as a reload may change it: a value, made anew by each reading."""

    def fleet(self, resolved: Mapping[str, Resolved], problems: Mapping[str, str]) -> FleetSpec:
        """What the core is told, given what is known of the sources and what hinders the rest."""

    @property
    def pools(self) -> Mapping[str, PoolConfig]:
        """The provider of each pool of the fleet."""

    @property
    def sources(self) -> tuple[str, ...]:
        """What a hub must be asked about."""

    def hub(self) -> Hub:
        """Where the hub is; reads the token, which is secret."""

    def fetch_env(self) -> tuple[tuple[str, str], ...]:
        """Mirror and token for the fetcher of weights on a node; reads the token, so secret."""

    def secret_env(self, model: str) -> tuple[tuple[str, str], ...]:
        """What the fleet does not tell of the environment of a model's engines: secret."""

    @property
    def day_starts(self) -> DayStart:
        """When the budget's day begins."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of it although it holds."""

    def reread(self) -> Self:
        """What the file says now. Blocks; raises `UsageError` for a file that cannot hold."""

    def compare(self, newer: Self, machines: Mapping[str, int]) -> Reload:
        """What would change; `machines` counts the living ones by pool."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Times in seconds.

    `bootstrap` renders the boot script of a node from its id, its single-use join token, the GPUs
    that it should have, and whom it is to ask for notices.
    `serve_again`: a `down` of an earlier life is over; a restart after a crash keeps it.
    `stop_grace`: how long calls under way may still be answered when the controller stops.
    `fault_linger`: how long the admin API tells of a fault before the process ends for it.
    `healthy_after`: how long it must run until earlier faults count no more.
    """

    state_dir: Path
    wishes: Wishes
    agent_url: str
    admin_socket: Path
    bootstrap: Callable[[str, str, int, Listening], str]
    admin_listen: tuple[str, int] | None = None
    engine_ports: EnginePorts = field(default_factory=EnginePorts)
    poll: PollTimes = field(default_factory=PollTimes)
    journal: JournalLimits = field(default_factory=JournalLimits)
    serve_again: bool = False
    stop_grace: float = 3.0
    fault_linger: float = 5.0
    healthy_after: float = 600.0
