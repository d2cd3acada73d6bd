"""Small routing tables for tests."""

from __future__ import annotations

from elasticd.routing_table import Endpoint, ModelRoute, RoutingTable, Tier


def endpoint(
    replica_id: str = "r1",
    *,
    slots: int = 2,
    tier: Tier = Tier.OPEN,
    incarnation: int = 1,
    weight: float = 1.0,
    url: str = "http://127.0.0.1:1",
    key: str = "key",
    spec_hash: str = "hash",
    cut_at: float | None = None,
) -> Endpoint:
    return Endpoint(replica_id, incarnation, url, key, slots, tier, "n1", spec_hash, weight, cut_at)


def route(
    *endpoints: Endpoint,
    model: str = "m",
    max_wait: float = 60.0,
    queue_limit: int = 100,
    state: str = "starting 1 replica",
    continues: bool = False,
    spec_hash: str = "",
) -> ModelRoute:
    return ModelRoute(model, endpoints, max_wait, queue_limit, state, continues, spec_hash)


def table(*routes: ModelRoute, version: int = 1, epoch: int = 1) -> RoutingTable:
    return RoutingTable(epoch, version, routes)
