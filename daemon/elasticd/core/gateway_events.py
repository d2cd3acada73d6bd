"""Facts that the gateway reports. To be had from `core.events`, which has all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemandSampled:
    """The gateway's own counts for one model at the moment of the report.

    `in_flight` requests have a lease, `queued` wait for one; `peak` is the highest sum of both
    since the last report; `arrivals` new requests since then.
    """

    model: str
    queued: int
    in_flight: int
    peak: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Requests the gateway runs on one replica now."""

    replica_id: str
    in_flight: int


@dataclass(frozen=True, slots=True)
class LoadSampled:
    """What runs where, by the gateway's leases: complete for the replicas in its table."""

    loads: tuple[ReplicaLoad, ...]


@dataclass(frozen=True, slots=True)
class RequestsMoved:
    """What became of the requests of a replica that is to go, or has failed some: counted by the
    gateway since it has known the replica.

    `finished`: there, although it was to go. `continued`: streams that went on elsewhere;
    `restarted`: elsewhere from their beginning, unseen. `lost`: their clients were told.
    """

    replica_id: str
    finished: int
    continued: int
    restarted: int
    lost: int


@dataclass(frozen=True, slots=True)
class GatewayBegan:
    """The gateway has started again: what its former life had under way and did not tell of is not
    known."""


@dataclass(frozen=True, slots=True)
class EndpointBroken:
    """The gateway's connection to a replica broke: closes the endpoint, proves no death."""

    replica_id: str
    incarnation: int
    message: str
