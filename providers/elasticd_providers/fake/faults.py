"""How the fake cloud misbehaves: set as a whole by `PUT /control/faults`, no fault by default.

`Faults` has two parts. The *world* is wrong for as long as the value stands: lists lag, zones are
sold out, machines do not boot. A *call* goes wrong by the script in `calls`: of the entries whose
operation matches, the first that is not used up is applied.

```json
{"list_lag": 20, "out_of_stock": ["zone-a/*"],
 "calls": [{"operation": "create", "effect": "lost", "times": 2},
           {"operation": "list", "effect": "throttled", "times": null, "retry_after": 3}]}
```
Patterns are matched against `zone/machine_type/market` in the way of file names (`*`, `?`, `[…]`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Operation = Literal[
    "offers", "create", "find", "list", "terminate", "notices", "boot_log", "preempt", "whoami"
]

TransportEffect = Literal[
    "dropped",  # the connection is closed and nothing was done
    "lost",  # it is done, and the connection closed without an answer
    "hang",  # accepted, never answered, nothing was done
    "hang_after",  # it is done and never answered
    "slow",  # done and answered after `seconds`
    "delayed",  # done at once, answered after `seconds`
]
ErrorEffect = Literal[
    "out_of_stock",  # 409
    "quota",  # 403 with a code in the body
    "price",  # 409: above the limit
    "throttled",  # 429, with Retry-After if `retry_after` is set
    "unauthorized",  # 401
    "forbidden",  # 403
    "no_balance",  # 402
    "invalid",  # 400
    "conflict",  # 409: something else is going on with it
    "not_found",  # 404 with the code of a machine that does not exist
    "server_error",  # 500
    "overloaded",  # 503
]
BodyEffect = Literal[
    "html",  # a proxy's 502 page instead of an answer; nothing was done
    "bare_404",  # a proxy's 404 page; nothing was done
    "html_after",  # the same 502 page, but it was done
    "truncated",  # JSON that ends in the middle
    "text",  # plain text where JSON is expected, status 200
    "strings",  # numbers as strings
    "no_address",  # machines without an address
    "odd_state",  # machines in the state "hibernating"
    "duplicates",  # each machine twice in a list
    "bad_entry",  # one entry of a list without an id
    "null",  # `null` instead of the list
    "missing",  # the list's key is not there
    "empty",  # an empty list that calls itself whole
    "shrunken",  # a list without `share` of its machines that calls itself whole
    "page_lost",  # the second page and all after it are empty
]
CreateEffect = Literal[
    "twice",  # carried out twice, answered once (with the later machine)
    "accepted",  # 202 without a machine; it comes after `seconds`
    "late",  # 504 at once; the machine comes after `seconds`
    "short",  # 200 with an empty list and nothing said; nothing was made
    "short_errors",  # 200 with an empty list and an error for the zone; nothing was made
    "unlisted",  # 200 with an empty list, and yet the machine was made
]
Effect = TransportEffect | ErrorEffect | BodyEffect | CreateEffect


class CallFault(BaseModel):
    """What happens to the next `times` calls of `operation`, after `skip` that are let pass.

    `times: null`: to all of them until the faults are set anew. `seconds`, `retry_after` and
    `share` belong to the effects that name them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation: Operation | Literal["*"]
    effect: Effect
    times: int | None = Field(default=1, ge=1)
    skip: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0)
    retry_after: float | None = None
    share: float = Field(default=0.5, ge=0, le=1)

    def matches(self, operation: str) -> bool:
        return self.operation in (operation, "*")


class Faults(BaseModel):
    """The faults of the day. Times in seconds.

    `list_lag`: a new machine is in lists only so long after its creation, `ended_lag`: an ended one
    so long after its end (as `active`). `lookup_lag`: as `list_lag`, for the exact search by name.
    `tags_lag`: a machine shows its tags so long after its creation. `unknown_lag`: so long after
    its creation a machine is "not found" by its id although it is there.
    `ended_lookup_lag`: as `ended_lag`, for the search by name.
    `out_of_stock`, `never_active`, `boot_fails`: patterns. The last two hold for machines created
    from now on; a failed boot says so in the boot log.
    `price_factor`: what the market asks, times the offers' prices.
    `terminate_ignored`: for so long after the first request to end a machine, requests are
    answered well and do nothing.
    `spot_lifetime`: spot machines created from now on are taken so long after their creation, with
    a notice `spot_notice` before (`null`: without one).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    list_lag: float = Field(default=0.0, ge=0)
    ended_lag: float = Field(default=0.0, ge=0)
    tags_lag: float = Field(default=0.0, ge=0)
    lookup_lag: float = Field(default=0.0, ge=0)
    ended_lookup_lag: float = Field(default=0.0, ge=0)
    unknown_lag: float = Field(default=0.0, ge=0)
    out_of_stock: tuple[str, ...] = ()
    never_active: tuple[str, ...] = ()
    boot_fails: tuple[str, ...] = ()
    price_factor: float = Field(default=1.0, gt=0)
    terminate_ignored: float = Field(default=0.0, ge=0)
    spot_lifetime: float | None = Field(default=None, ge=0)
    spot_notice: float | None = Field(default=None, ge=0)
    calls: tuple[CallFault, ...] = ()
