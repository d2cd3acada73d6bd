"""What one step of the decision core costs, at 1,000 nodes and at ten times as many.

    python tests/bench/core_bench.py [--steps N] [--seed N]

Fifty models, three replicas a node. Each step brings 50 reports of demand and one report of the
cluster in which ten nodes have changed; now and then an instance list, a lost node and a
growing queue, so that replicas are placed and machines bought in the measured steps. Writes
`build/reports/core.json`; exits non-zero beyond the bounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.core.world import World, model, offering, pool

from elasticd.core.events import (
    ClusterObserved,
    DemandSampled,
    Event,
    LoadSampled,
    ReplicaLoad,
)

MODELS = 50
REPLICAS_PER_NODE = 3
MEDIAN_MS, P99_MS = 20.0, 60.0
REPORT = Path("build/reports/core.json")


def grown(nodes: int) -> World:
    """A fleet of so many nodes, all replicas ready."""
    each = nodes * REPLICAS_PER_NODE // MODELS
    models = [
        model(
            f"m{i}",
            min_replicas=each,
            max_replicas=each + 20,
            upscale_delay=5.0,
            downscale_delay=60.0,
            spec_hash=f"hash-{i}",
        )
        for i in range(MODELS)
    ]
    world = World(
        models, [pool(max_nodes=nodes + 200, max_loads=9)], [offering(gpus=REPLICAS_PER_NODE)]
    )
    world.start()
    for _ in range(12):
        world.settle()
    ready = sum(len(world.open_endpoints(f"m{i}")) for i in range(MODELS))
    if ready != each * MODELS:
        sys.exit(f"the fleet did not grow: {ready} of {each * MODELS} replicas are ready")
    return world


class Load:
    """The events of one step after another."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.each = len(world.replicas) // MODELS
        self.random = random.Random(seed)
        self.steps = 0

    def events(self) -> list[Event]:
        world = self.world
        self.steps += 1
        events: list[Event] = []
        for i in range(MODELS):
            # Some models grow and shrink: sixteen requests are wanted on one replica.
            busy = self.random.randint(0, 40) + (i % 5 == 0) * 16 * self.each
            events.append(DemandSampled(f"m{i}", busy // 4, busy, busy + 2, busy))
        loads = tuple(ReplicaLoad(r, self.random.randint(0, 3)) for r in world.replicas)
        events.append(LoadSampled(loads))
        events.append(self._cluster())
        if self.steps % 10 == 0:
            events += world.listings()
        if self.steps % 20 == 0:
            lost = sorted(i.node_id or "" for i in world.instances.values())[self.steps % 97]
            world.kill_node(lost)
        return events

    def _cluster(self) -> ClusterObserved:
        """Everything there is, as the agent tells it; of ten nodes something has changed."""
        seen = self.world.observed()
        nodes = list(seen.nodes)
        for index in self.random.sample(range(len(nodes)), 10):
            nodes[index] = replace(nodes[index], boot=f"up {self.steps}")
        replicas = tuple(replace(r) for r in seen.replicas)  # equal, not the same objects
        return ClusterObserved(tuple(nodes), replicas, True)


def measure(nodes: int, steps: int, seed: int) -> dict[str, Any]:
    """Durations of `steps` steps, in milliseconds; the world's own work does not count."""
    world = grown(nodes)
    load = Load(world, seed)
    took, actions = [], 0
    gc.collect()
    gc.freeze()
    for _ in range(steps):
        world.now += 1.0
        todo, world.pending = world.pending, []
        answers = [a for a in map(world.carry_out, todo) if a is not None]
        world.boot_all()
        world.load_all()
        events = [*answers, *load.events()]
        begin = time.perf_counter()
        plan = world.core.step(world.now, events)
        rows = world.core.changed_rows()
        took.append((time.perf_counter() - begin) * 1000)
        world.rows.update({(r.kind, r.id): r for r in rows})
        world.pending.extend(
            a for a in plan.actions if hasattr(a, "node_id") or hasattr(a, "grace")
        )
        actions += len(plan.actions)
    gc.unfreeze()
    took.sort()
    return {
        "nodes": nodes,
        "replicas": nodes * REPLICAS_PER_NODE,
        "steps": steps,
        "actions": actions,
        "median_ms": round(statistics.median(took), 2),
        "p99_ms": round(took[int(len(took) * 0.99)], 2),
        "worst_ms": round(took[-1], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    small = measure(1000, args.steps, args.seed)
    large = measure(10_000, max(args.steps // 6, 20), args.seed)
    growth = large["median_ms"] / small["median_ms"]
    fine = small["median_ms"] <= MEDIAN_MS and small["p99_ms"] <= P99_MS
    report = {"small": small, "large": large, "growth_for_ten_times": round(growth, 2)}
    report["bounds"] = {"median_ms": MEDIAN_MS, "p99_ms": P99_MS, "kept": fine}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2))
    print(
        f"core: {small['median_ms']} ms median, {small['p99_ms']} ms p99 at 1,000 nodes; "
        f"{growth:.1f} times that at 10,000; {'within' if fine else 'BEYOND'} the bounds"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
