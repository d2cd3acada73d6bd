"""The keys of a pool with `provider: local`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from elasticd.option_types import Duration, Price
from elasticd.units import Money


def _gpus(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 64
    if value == "auto" or whole:
        return value
    raise ValueError(f"not a number of GPUs: {value!r}; allowed: auto, or a whole number 0 to 64")


Gpus = Annotated[
    int | str,
    BeforeValidator(_gpus),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0}]}),
]


class LocalOptions(BaseModel):
    """What this host rents out."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    max_machines: int = Field(default=4, ge=1, le=64)
    """How many machines this host plays at once; a stock, where `max_nodes` is a limit."""
    gpus: Gpus = "auto"
    """Per machine. A number declares so many; `auto` gives the host's real GPUs, then to one
    machine at a time, or declares one where there are none."""
    gpu_kind: str | None = Field(default=None, min_length=1, max_length=64)
    """What the GPUs call themselves; default: `simulated`, or the real ones' name."""
    zones: Annotated[tuple[str, ...], Field(strict=False)] = Field(default=("local",), min_length=1)
    """The zones machines are spread over."""
    price: Price = Money(0, "USD")
    """Per hour and machine."""
    boot_delay: Duration = 0.0
    """How long a machine takes before its bootstrap script runs."""
