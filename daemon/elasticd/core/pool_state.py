"""What the core knows of one pool: its offerings, what is wrong there, what nobody asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.specs import NodePool
from elasticd.provider import Instance, Offering

STOCK, QUOTA, PRICE = "stock", "quota", "price"
"""Kinds of trouble with single offerings (`Aside.kind`)."""

AUTH, BILLING, REJECTED = "auth", "billing", "rejected"
THROTTLED, OUTAGE, BOOT, VERSIONS = "throttled", "outage", "boot", "versions"
"""Kinds of trouble with a whole pool (`Trouble.kind`)."""


@dataclass(frozen=True, slots=True)
class Aside:
    """An offering that was refused: not asked for before `until`, after `refusals` in a row."""

    kind: str
    until: float
    refusals: int
    why: str
    since: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pool from being used, `count` times in a row.

    Nothing is bought before `until`; `None`: before a reload, or before the provider answers.
    """

    kind: str
    text: str
    since: float
    count: int = 1
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A machine of ours that no node stands for. `lists`: so many in a row have shown it."""

    instance: Instance
    since: float
    lists: int = 1
    asked_at: float | None = None


@dataclass(slots=True)
class PoolState:
    """What is known of one pool. `listed_at`: last complete instance list (`None`: none yet);
    `listed_from`: when that was asked for; `first_listed_at`: the first one of this life.

    `aside`: offerings set aside. `troubles`: by kind, or by kind and what failed. `unclear`: calls
    in a row without a clear answer. `recovered_at`: when an outage ended. `forgiven_at`: when an
    operator last had everything tried again.
    `boot_failures`: machines in a row that did not become nodes, the last at `boot_failed_at`.
    `orphans`: by instance id. `foreign_machines`: those of another ledger, by instance id;
    `foreign`: that ledger.
    """

    spec: NodePool
    offerings: tuple[Offering, ...] | None = None
    listed_at: float | None = None
    listed_from: float | None = None
    first_listed_at: float | None = None
    foreign: str = ""
    foreign_machines: dict[str, Instance] = field(default_factory=dict)
    aside: dict[str, Aside] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    unclear: int = 0
    recovered_at: float | None = None
    forgiven_at: float = 0.0
    boot_failures: int = 0
    boot_failed_at: float = 0.0
    last_error: str = ""
    orphans: dict[str, Orphan] = field(default_factory=dict)

    @property
    def in_outage(self) -> bool:
        """Whether the provider has stopped answering: nothing is known, so nothing is destroyed."""
        return OUTAGE in self.troubles or THROTTLED in self.troubles
