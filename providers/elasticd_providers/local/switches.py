"""`cloud.json`: how this cloud misbehaves just now. Read at every call; no file, a good day.

```json
{"out_of_capacity": ["zone-a"], "boot_delay": "20s", "gpus_late": "3m", "hang": true,
 "launch_error": "QuotaExceeded"}
```
`out_of_capacity`: true, or the zones that are sold out. `boot_delay`: for machines launched from
now on, instead of the pool's. `gpus_late`, `gpus_never`: on machines launched from now on the
declared GPUs appear so long after the boot, or not at all. `hang`: calls do not answer until the
file changes; `"after"` lets a launch or a termination happen first and only holds back the answer.
`launch_error`: the class of the provider contract that every launch fails with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticd import provider as contract
from elasticd.option_types import Duration

FILE_NAME: Final = "cloud.json"

LaunchError = Literal[
    "NoCapacity",
    "QuotaExceeded",
    "PriceTooHigh",
    "RateLimited",
    "Unavailable",
    "AuthFailed",
    "BillingBlocked",
    "Rejected",
]


class Switches(BaseModel):
    """The contents of `cloud.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    out_of_capacity: bool | tuple[str, ...] = False
    boot_delay: Duration | None = None
    gpus_late: Duration = 0.0
    gpus_never: bool = False
    hang: bool | Literal["before", "after"] = False
    launch_error: LaunchError | None = None

    @property
    def gpus_after(self) -> float | None:
        """Seconds from the boot until the declared GPUs are there; `None`: they never are."""
        return None if self.gpus_never else self.gpus_late

    def sold_out(self, zone: str) -> bool:
        if isinstance(self.out_of_capacity, bool):
            return self.out_of_capacity
        return zone in self.out_of_capacity

    def hangs(self, moment: Literal["before", "after"]) -> bool:
        return self.hang == moment or (self.hang is True and moment == "before")

    def raise_launch_error(self) -> None:
        """Raises the error that launches are to fail with, if any."""
        if self.launch_error is not None:
            error: type[contract.ProviderError] = getattr(contract, self.launch_error)
            raise error(f"local: launch_error in {FILE_NAME} asks for {self.launch_error}")


def read_switches(state_dir: Path) -> Switches:
    """The switches as they stand. A file that cannot be read is an outage, not a good day."""
    path = state_dir / FILE_NAME
    try:
        return Switches.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Switches()
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise contract.Unavailable(
            f"local: {path} is wrong ({faults}); correct or remove it"
        ) from None


def write_switches(state_dir: Path, **switches: Any) -> None:
    """Replaces `cloud.json`; with no switch, all is well again. Refuses what it could not read."""
    Switches.model_validate(switches)
    path = state_dir / FILE_NAME
    if not switches:
        path.unlink(missing_ok=True)
        return
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(switches), encoding="utf-8")
    draft.replace(path)
