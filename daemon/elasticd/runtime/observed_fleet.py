"""The fleet as a controller that only observes can still tell it.

The configuration says what is wanted, the ledger's rows what was decided last, the providers what
is there now. A core would put these together in a step; one that fails in its steps is given none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.core.specs import FleetSpec, ModelSpec
from elasticd.core.specs import NodePool as PoolSpec
from elasticd.provider import Instance
from elasticd.runtime.last_picture import LastKnown

Thing = Mapping[str, Any]

_LIVE = ("ready", "starting", "pending", "draining")
_REASON = "the last that was decided, before the controller only observed"


@dataclass(frozen=True, slots=True)
class Listed:
    """What a provider has: heard `age` seconds ago; `None`: not yet. `error`: why not later."""

    instances: Sequence[Instance] = ()
    age: float | None = None
    error: str = ""


class ObservedFleet:
    """`fleet` is what the configuration wants; `None`: it cannot be said."""

    def __init__(self, fleet: FleetSpec | None, known: LastKnown) -> None:
        self._fleet = fleet
        self._known = known
        docs = [(row.kind, row.id, row.doc) for row in known.rows if row.doc is not None]
        self._models = {key: doc for kind, key, doc in docs if kind == "model"}
        self._adopted = sorted(key for kind, key, _ in docs if kind == "adopted")

    def complete(self, told: Thing, listed: Mapping[str, Listed], now: float) -> dict[str, Any]:
        """`told` is a status without a configuration; returns the parts of it that one adds to."""
        pools = self._fleet.pools if self._fleet is not None else ()
        names = {pool.name for pool in pools}
        nodes = [_checked(node, listed.get(str(node.get("pool")))) for node in told["nodes"]]
        before = {str(pool["name"]): pool for pool in told["pools"]}
        others = [name for name in (*before, *listed) if name not in names]
        unknown = [n for n in nodes if n.get("phase") != "gone" and n.get("pool") not in names]
        return {
            "cluster": told.get("cluster") or (self._fleet.cluster if self._fleet else ""),
            "models": [self._model(spec, told, now) for spec in self._wanted()]
            or list(told["models"]),
            "nodes": nodes,
            "pools": [
                *(
                    {
                        **_asked_for(p),
                        **before.get(p.name, {}),
                        **self._pool(p.name, nodes, listed, now),
                    }
                    for p in pools
                ),
                *(
                    {**before.get(name, {}), **self._pool(name, nodes, listed, now)}
                    for name in dict.fromkeys(others)
                ),
            ],
            # Without a configuration it is not known that any pool has left it.
            "unmanaged": [
                {"node_id": node["id"], "pool": node["pool"]}
                for node in (unknown if self._fleet is not None else ())
            ],
        }

    def _wanted(self) -> Sequence[ModelSpec]:
        return self._fleet.models if self._fleet is not None else ()

    def _model(self, spec: ModelSpec, told: Thing, now: float) -> dict[str, Any]:
        replicas = [r for r in told.get("replicas", ()) if r.get("model") == spec.name]
        phases = [replica.get("phase") for replica in replicas]
        saved = self._models.get(spec.name, {})
        wanted, failures = _count(saved.get("target")), _count(saved.get("failures")) or 0
        return {
            "name": spec.name,
            "wanted": wanted,
            **{phase: phases.count(phase) for phase in _LIVE},
            "queued": None,
            "in_flight": None,
            "demand_age": None,
            "reasons": [] if wanted is None else [_REASON],
            "blocked": "",
            "failures": failures,
            "failed": failures >= spec.start_attempts,
            "last_cause": str(saved.get("last_cause") or ""),
            "last_tail": [str(line) for line in saved.get("last_tail") or ()],
            "unresolved": "",
            "spec_hash": spec.spec_hash,
            "min_replicas": spec.scaling.min_replicas,
            "max_replicas": spec.scaling.max_replicas,
            "pools": list(spec.pools),
            "outdated": 0,
            "hold": _hold(saved.get("hold"), now),
        }

    def _pool(
        self, name: str, nodes: Sequence[Thing], listed: Mapping[str, Listed], now: float
    ) -> dict[str, Any]:
        heard = listed.get(name, Listed())
        ours = {self._known.ledger_id, *self._adopted}
        machines = {node.get("instance_id"): node for node in nodes if node.get("phase") != "gone"}
        by_node = {str(node["id"]): node for node in machines.values()}
        mine = [i for i in heard.instances if i.ledger_id in ours]
        return {
            "name": name,
            "listed_age": heard.age,
            "last_error": heard.error,
            "troubles": [],
            "adopted": self._adopted,
            "observed": True,
            "orphans": [
                {**_machine(i, now), "seconds_left": None}
                for i in mine
                if i.instance_id not in machines and not _awaited(by_node.get(i.node_id or ""))
            ],
            "foreign_machines": [
                {**_machine(i, now), "ledger_id": i.ledger_id}
                for i in heard.instances
                if i.ledger_id is not None and i.ledger_id not in ours
            ],
            "machines": [
                {
                    "instance_id": i.instance_id,
                    "node_id": i.node_id,
                    "ours": i.ledger_id in ours,
                    "state": i.state.value,
                    "address": i.address,
                }
                for i in heard.instances
            ],
        }


def _asked_for(pool: PoolSpec) -> dict[str, Any]:
    return {"name": pool.name, "provider": pool.provider, "max_nodes": pool.max_nodes}


def _awaited(node: Thing | None) -> bool:
    """A node whose launch was not answered yet: a machine that carries its name is its own."""
    return node is not None and not node.get("instance_id")


def _checked(node: Thing, heard: Listed | None) -> dict[str, Any]:
    """With a word about a machine that its provider no longer lists: nobody acts on that now."""
    machine = node.get("instance_id")
    if heard is None or heard.age is None or not machine or node.get("phase") == "gone":
        return dict(node)
    if machine in {instance.instance_id for instance in heard.instances}:
        return dict(node)
    missing = f"its machine {machine} is not on the provider's list; nothing acts on that"
    return {**node, "held": [*(node.get("held") or ()), missing]}


def _machine(instance: Instance, now: float) -> dict[str, Any]:
    offering, launched = instance.offering, instance.launched_at
    return {
        "instance_id": instance.instance_id,
        "node_id": instance.node_id,
        "offering": offering.id if offering is not None else None,
        "price_micros": offering.price_micros if offering is not None else None,
        "currency": offering.currency if offering is not None else None,
        "age": None if launched is None else max(0.0, now - launched),
    }


def _hold(saved: Any, now: float) -> dict[str, Any] | None:
    """As it was written; a row that no core understands is no reason to tell nothing."""
    if not isinstance(saved, dict) or _count(saved.get("replicas")) is None:
        return None
    until = saved.get("until")
    left = max(0.0, until - now) if isinstance(until, int | float) else None
    return {"replicas": saved["replicas"], "seconds_left": left, "by": str(saved.get("by") or "")}


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
