"""What the fake cloud rents out, and its lasting habits. Its faults of the day are in `faults`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CloudMarket = Literal["spot", "on_demand"]


class Offer(BaseModel):
    """One machine type in one zone on one market.

    `price` is millionths of `currency` per hour, `stock` how many there are (`None`: endless).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str
    machine_type: str
    market: CloudMarket = "spot"
    price: int = Field(default=500_000, ge=0)
    currency: str = "USD"
    gpu_kind: str = "simulated"
    gpu_count: int = Field(default=1, ge=0)
    gpu_memory_mib: int | None = None
    stock: int | None = Field(default=None, ge=0)

    @property
    def key(self) -> str:
        """What patterns of faults are matched against: `zone/machine_type/market`."""
        return f"{self.zone}/{self.machine_type}/{self.market}"


def _usual_offers() -> tuple[Offer, ...]:
    """Two zones, two machine types, both markets."""
    kinds = (("g1.small", "simulated", 1, 400_000), ("g2.large", "simulated", 2, 900_000))
    return tuple(
        Offer(
            zone=zone,
            machine_type=machine_type,
            market=market,
            gpu_kind=gpu_kind,
            gpu_count=gpus,
            price=price if market == "spot" else 3 * price,
        )
        for zone in ("zone-a", "zone-b")
        for machine_type, gpu_kind, gpus, price in kinds
        for market in ("spot", "on_demand")
    )


class Settings(BaseModel):
    """How this cloud is. Times in seconds.

    `tokens`: creations may carry a client token, and a repeated one makes nothing new.
    `quota`: how many machines the account may have at once.
    `page_size`: machines in one page of a list.
    `boot_seconds`: from creation until active. `stop_seconds`: from stopping until ended.
    `remembered`: how long an ended machine is still found by its name, with its boot log.
    `address`: that of every machine; `None`: each has its own, and the lowest free one is given
    out first, so that a new machine soon has the address of an ended one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    offers: tuple[Offer, ...] = Field(default_factory=_usual_offers)
    tokens: bool = False
    quota: int | None = Field(default=None, ge=0)
    page_size: int = Field(default=50, ge=1)
    boot_seconds: float = Field(default=0.0, ge=0)
    stop_seconds: float = Field(default=0.0, ge=0)
    remembered: float = Field(default=3600.0, ge=0)
    address: str | None = None
