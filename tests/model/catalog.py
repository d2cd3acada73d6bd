"""What there is to rent, and what people want of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from elasticd.core.specs import Budget, Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd_providers.fake.catalog import Offer
from tests.model.books import CLUSTER, RATES, VISIBILITY_GRACE

POOLS: Final = ("blue", "green")


def offers(zone: str, currency: str, small: int, large: int) -> tuple[Offer, ...]:
    """A machine of one GPU and one of two, on the spot market."""
    return (
        Offer(zone=zone, machine_type="g1.small", gpu_count=1, price=small, currency=currency),
        Offer(zone=zone, machine_type="g2.large", gpu_count=2, price=large, currency=currency),
    )


DOLLARS = (*offers("zone-a", "USD", 400_000, 900_000), *offers("zone-b", "USD", 450_000, 800_000))
YUAN = {
    True: offers("zone-c", "CNY", 2_600_000, 5_000_000),
    False: offers("zone-c", "CNY", 3_300_000, 6_600_000),
}
"""By whether they are cheaper than those that are paid in dollars."""


def model(name: str, spec: str = "one", **scaling: Any) -> ModelSpec:
    """A model of one GPU."""
    usual = {"target_ongoing_requests": 2.0, "upscale_delay": 5.0, "downscale_delay": 20.0}
    return ModelSpec(
        name=name,
        source=f"file:/models/{name}",
        engine=Engine("command", argv=("serve", "{port}")),
        spec_hash=f"{name}-{spec}",
        gpus_per_replica=1,
        pools=POOLS,
        scaling=Scaling(**{**usual, **scaling}),
        drain_timeout=20.0,
        start_timeout=60.0,
    )


def models(spec: str = "one", most: int = 3, least: int = 1) -> tuple[ModelSpec, ...]:
    """One that is always served unless it may sleep, and one of two GPUs that mostly sleeps."""
    big = replace(
        model("z", min_replicas=0, max_replicas=2, scale_to_zero_after=30.0), gpus_per_replica=2
    )
    return (model("m", spec, min_replicas=least, max_replicas=most), big)


def pool(name: str, max_nodes: int = 2) -> NodePool:
    """With limits of time that suit a cloud which is quick when it is well."""
    return NodePool(
        name,
        "fake",
        max_nodes,
        boot_timeout=90.0,
        gpu_timeout=40.0,
        idle_timeout=30.0,
        visibility_grace=VISIBILITY_GRACE,
    )


def fleet(
    max_nodes: int = 2, budget: Budget | None = None, wanted: tuple[ModelSpec, ...] | None = None
) -> FleetSpec:
    """Both pools and both models."""
    pools = tuple(pool(name, max_nodes) for name in POOLS)
    return FleetSpec(CLUSTER, wanted or models(), pools, budget or caps())


def caps(per_hour: int | None = None, per_day: int | None = None) -> Budget:
    """In micro-USD; what a yuan is worth is known."""
    return Budget("USD", per_hour, per_day, (("CNY", RATES["CNY"]),))
