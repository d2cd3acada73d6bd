"""What goes into the fake cloud and comes out of it, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd_providers.fake.catalog import CloudMarket, Offer
from elasticd_providers.fake.machines import CloudState, Machine


class Refusal(Exception):
    """The cloud says no. `code` is the vendor's word, `status` that of the HTTP answer."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Order:
    """One machine, please. `max_price` in millionths per hour; `token`: see `Settings.tokens`."""

    name: str
    zone: str
    machine_type: str
    market: CloudMarket = "spot"
    tags: dict[str, str] = field(default_factory=dict)
    bootstrap: str = ""
    max_price: int | None = None
    token: str = ""

    @property
    def key(self) -> str:
        return f"{self.zone}/{self.machine_type}/{self.market}"


@dataclass(frozen=True, slots=True)
class Sight:
    """A machine as an answer shows it, which may be behind the truth."""

    machine: Machine
    state: CloudState
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Stock:
    """An offer today: its price in millionths, and how many are left (`None`: enough)."""

    offer: Offer
    price: int
    left: int | None
