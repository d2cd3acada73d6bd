"""A machine of the fake cloud. Its state is a function of time: nothing has to tick."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticd_providers.fake.catalog import CloudMarket

CloudState = Literal["ordered", "provisioning", "active", "stopping", "ended"]
"""`ordered` is a machine whose creation was answered and is still to happen; nobody sees it."""


@dataclass(slots=True)
class Machine:
    """One machine, for ever: ended ones are kept, so that tests can see all that ever was.

    Times are seconds of the cloud's clock and may lie in the future.
    `active_at` is `None` where it never will be. `stop_asked_at`: the first request to end it.
    `reclaim_at`: when the market takes it; `noticed_at`: since when that is told.
    `price` is what is paid per hour, in millionths of `currency`.
    """

    id: str
    name: str
    tags: dict[str, str]
    zone: str
    machine_type: str
    market: CloudMarket
    gpu_kind: str
    gpu_count: int
    price: int
    currency: str
    address: str
    created_at: float
    active_at: float | None
    bootstrap: str = ""
    token: str = ""
    boot_fails: bool = False
    printed: list[str] = field(default_factory=list)
    stop_asked_at: float | None = None
    stopping_at: float | None = None
    ended_at: float | None = None
    reclaim_at: float | None = None
    noticed_at: float | None = None
    notice_id: str = ""

    @property
    def key(self) -> str:
        return f"{self.zone}/{self.machine_type}/{self.market}"

    @property
    def gone_at(self) -> float | None:
        """When it ends, or ended, by whatever comes first."""
        ends = [end for end in (self.ended_at, self.reclaim_at) if end is not None]
        return min(ends, default=None)

    def state(self, now: float) -> CloudState:
        if now < self.created_at:
            return "ordered"
        if self.gone_at is not None and now >= self.gone_at:
            return "ended"
        if self.stopping_at is not None and now >= self.stopping_at:
            return "stopping"
        if self.active_at is not None and now >= self.active_at:
            return "active"
        return "provisioning"

    def costs(self, now: float) -> bool:
        """Whether it is being paid for."""
        return self.state(now) in ("provisioning", "active", "stopping")

    def taken(self, now: float) -> bool:
        """Whether it holds stock, quota and its address: also before it has come into being."""
        return self.state(now) != "ended"

    def seconds_paid(self, now: float) -> float:
        """How long it has been paid for until `now`."""
        end = now if self.gone_at is None else min(now, self.gone_at)
        return max(0.0, end - self.created_at)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Machine:
        return cls(**document)
