"""The keys of a pool with `provider: local`, and the units they are written in."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MONEY = re.compile(r"(\d+(?:\.\d{1,6})?) ([A-Z]{3})")


def duration_seconds(value: object) -> float:
    """`"3s"`, `"1.5m"` → seconds. A bare number is refused: it does not say its unit."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a duration; write for example "3s", "500ms" or "2m"')
    return float(match[1]) * _SECONDS[match[2]]


def price_per_hour(value: object) -> tuple[int, str]:
    """`"0.10 USD"` → (100000, "USD"): millionths per hour."""
    if isinstance(value, tuple):
        return value
    match = _MONEY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a price per hour; write for example "0.10 USD"')
    return int(Decimal(match[1]) * 1_000_000), match[2]


Duration = Annotated[float, BeforeValidator(duration_seconds)]
Price = Annotated[tuple[int, str], BeforeValidator(price_per_hour)]


class LocalOptions(BaseModel):
    """What this host rents out.

    `gpus`: `auto` gives a machine the host's real GPUs (then one machine at a time), or declares
    one where there are none; a number declares so many in any case.
    `gpu_kind`: what the GPUs call themselves; the default is `simulated`, or the real ones' name.
    `boot_delay`: how long a machine takes before its bootstrap script runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_machines: int = Field(default=4, ge=1, le=64)
    gpus: Literal["auto"] | Annotated[int, Field(ge=0, le=64, strict=True)] = "auto"
    gpu_kind: str | None = Field(default=None, min_length=1, max_length=64)
    zones: tuple[str, ...] = Field(default=("local",), min_length=1)
    price: Price = (0, "USD")
    boot_delay: Duration = 0.0
