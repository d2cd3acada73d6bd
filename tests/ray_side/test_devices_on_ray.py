"""Which GPUs engines see on real Ray: disjoint ones, and none that the host had masked."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from elasticd.agent_api.messages import ClusterState, ReplicaReport
from tests.ray_side.small_cluster import SmallCluster, small_cluster

pytestmark = pytest.mark.e2e

STUB = str(Path(__file__).parent / "stub_engine.py")


def _seen_by_engine(cluster: SmallCluster, replica: ReplicaReport) -> Any:
    """`CUDA_VISIBLE_DEVICES` in the engine's own environment."""
    key = cluster.secret.engine_key(replica.replica_id, 1)
    request = urllib.request.Request(f"{replica.url}/v1/models")
    request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["gpus"]


def _both_nodes(state: ClusterState) -> bool:
    return {n.node_id: n.gpus for n in state.nodes if n.alive} == {"four": 4, "masked": 2}


async def test_replicas_see_disjoint_gpus_and_a_host_mask_is_respected() -> None:
    async with small_cluster() as cluster:
        cluster.start_head_and_agent()
        cluster.start_node("four", 4)
        cluster.start_node("masked", 2, CUDA_VISIBLE_DEVICES="2,3")
        await cluster.until(_both_nodes)
        for replica_id, node, gpus in (
            ("pair-1", "four", 2),
            ("pair-2", "four", 2),
            ("one-1", "masked", 1),
            ("one-2", "masked", 1),
        ):
            argv = (sys.executable, STUB, "{port}")
            order = cluster.order(
                replica_id, node, gpus, engine_kind="command", engine_argv=argv, model_path=""
            )
            await cluster.client.start(order)
        reports = await cluster.until_ready("pair-1", "pair-2", "one-1", "one-2")
        seen = [_seen_by_engine(cluster, report) for report in reports]
        assert sorted(seen[:2]) == ["0,1", "2,3"]
        assert sorted(seen[2:]) == ["2", "3"]
        assert [",".join(report.gpu_ids) for report in reports] == seen
