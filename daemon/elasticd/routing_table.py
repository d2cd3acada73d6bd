"""Where requests may go: frozen values the controller publishes and the gateway routes by.

A leaf: both sides import it, it imports neither.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.json_fields import Fields

ReplicaKey = tuple[str, int]
"""Replica id and incarnation: a restarted replica is another one."""


class Tier(enum.StrEnum):
    """Whether an endpoint takes new requests."""

    OPEN = "open"
    LAST_RESORT = "last_resort"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica's address. `slots` requests run at once; the key opens the engine's guard.

    `cut_at`: when the replica is stopped, whatever runs there (the controller's clock, seconds);
    `None`: it stays. `replica_key`: what all that is known of the replica is kept under.
    """

    replica_id: str
    incarnation: int
    url: str
    key: str
    slots: int
    tier: Tier
    node_id: str
    spec_hash: str
    weight: float = 1.0
    cut_at: float | None = None
    replica_key: ReplicaKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Made once: every request asks for it several times."""
        object.__setattr__(self, "replica_key", (self.replica_id, self.incarnation))


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """A model the gateway knows, also while it has no endpoint.

    `max_wait` seconds a request is held while capacity comes. `state` says in a few words what
    requests would wait for ("starting 1 replica", …), for error texts. `continues`: a stream whose
    replica is lost goes on with another one. `spec_hash`: of the replicas that are started now;
    empty: not known.
    """

    model: str
    endpoints: tuple[Endpoint, ...]
    max_wait: float
    queue_limit: int
    state: str = ""
    continues: bool = False
    spec_hash: str = ""


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All routes. `epoch` grows with each controller start, `version` with each publication."""

    epoch: int
    version: int
    models: tuple[ModelRoute, ...]


def on_other_clock(table: RoutingTable, ahead: float) -> RoutingTable:
    """The table as it reads on a clock that is `ahead` seconds of the controller's."""

    def moved(endpoint: Endpoint) -> Endpoint:
        cut_at = endpoint.cut_at
        return endpoint if cut_at is None else replace(endpoint, cut_at=cut_at + ahead)

    models = (replace(m, endpoints=tuple(map(moved, m.endpoints))) for m in table.models)
    return replace(table, models=tuple(models))


def table_to_json(table: RoutingTable) -> dict[str, Any]:
    """Plain JSON of a table; the inverse of `table_from_json`."""
    return {
        "v": 1,
        "epoch": table.epoch,
        "version": table.version,
        "models": [
            {
                "model": m.model,
                "max_wait": m.max_wait,
                "queue_limit": m.queue_limit,
                "state": m.state,
                "continues": m.continues,
                "spec_hash": m.spec_hash,
                "endpoints": [
                    {
                        "replica_id": e.replica_id,
                        "incarnation": e.incarnation,
                        "url": e.url,
                        "key": e.key,
                        "slots": e.slots,
                        "tier": e.tier.value,
                        "node_id": e.node_id,
                        "spec_hash": e.spec_hash,
                        "weight": e.weight,
                        "cut_at": e.cut_at,
                    }
                    for e in m.endpoints
                ],
            }
            for m in table.models
        ],
    }


def table_from_json(data: object) -> RoutingTable:
    """Reads what `table_to_json` wrote. Raises `ValueError` with the place of what is wrong.

    Fields that are not known here are passed over: the controller may be the newer program.
    """
    told = Fields(data)
    if (version := told.whole("v")) != 1:
        raise ValueError(f"routing table of version {version}, this program reads version 1")
    return RoutingTable(
        epoch=told.whole("epoch"),
        version=told.whole("version"),
        models=tuple(map(_route, told.each("models"))),
    )


def sent_at(data: object) -> float | None:
    """When the controller sent it, on its own clock; `None`: it does not say. Raises
    `ValueError`."""
    told = Fields(data)
    return told.maybe("at", told.seconds)


def _route(told: Fields) -> ModelRoute:
    return ModelRoute(
        model=told.text("model"),
        endpoints=tuple(map(_endpoint, told.each("endpoints"))),
        max_wait=told.size("max_wait", zero=True),
        queue_limit=told.whole("queue_limit"),
        state=told.text("state"),
        continues=told.flag("continues", default=False),
        spec_hash=told.text("spec_hash", default=""),
    )


def _endpoint(told: Fields) -> Endpoint:
    return Endpoint(
        replica_id=told.word("replica_id"),
        incarnation=told.whole("incarnation"),
        url=told.url("url"),
        key=told.word("key"),
        slots=told.whole("slots"),
        tier=told.one_of("tier", Tier),
        node_id=told.word("node_id"),
        spec_hash=told.word("spec_hash"),
        weight=told.size("weight", default=1.0),
        cut_at=told.maybe("cut_at", told.seconds),
    )
