"""A replica with two GPUs: one engine of two workers, on real Ray and real vLLM."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from elasticd.demo import tiny_model
from elasticd.node import process_tree
from elasticd.settings.paths import demo_model_dir
from tests.node.waiting import alive, eventually
from tests.ray_side.small_cluster import small_cluster

pytestmark = pytest.mark.e2e

ENGINE_ARGS = {
    "dtype": "float32",
    "enforce-eager": "true",
    "max-model-len": "1024",
    "max-num-seqs": "4",
    "gpu-memory-utilization": "0.05",
    "kv-cache-memory-bytes": "67108864",
}
ENGINE_ENV = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def _model() -> Path:
    """The one that `source: demo:tiny` means; made if this is its first use here."""
    directory = demo_model_dir()
    return directory if tiny_model.finished(directory) else tiny_model.make(directory)


def _completion(url: str, key: str) -> Any:
    body = {"model": "tiny", "prompt": "Say", "max_tokens": 20, "temperature": 0}
    request = urllib.request.Request(f"{url}/v1/completions", data=json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def _below(pids: list[int]) -> dict[int, str]:
    """Every process below these, by its command."""
    found = {pid for root in pids for pid in process_tree.descendants(root)}
    return {pid: process_tree.command(pid) for pid in found}


async def test_a_replica_with_two_gpus_runs_two_workers_answers_and_leaves_none_of_them() -> None:
    model = await asyncio.to_thread(_model)
    async with small_cluster() as cluster:
        cluster.start_head_and_agent()
        cluster.start_node("n", 2)
        await cluster.until(lambda s: any(n.alive and n.gpus == 2 for n in s.nodes))
        order = cluster.order(
            "r",
            "n",
            2,
            model="tiny",
            model_path=str(model),
            engine_args=tuple(ENGINE_ARGS.items()),
            engine_env=tuple(ENGINE_ENV.items()),
        )
        await cluster.client.start(order)
        (replica,) = await cluster.until_ready("r", within=180.0)
        assert replica.gpu_ids == ("0", "1")
        answer = await asyncio.to_thread(_completion, replica.url, order.key)
        assert answer["usage"]["completion_tokens"] == 20
        below = _below([process.pid for process in cluster.processes])
        workers = [pid for pid, command in below.items() if command.startswith("VLLM::Worker_TP")]
        assert sorted(below[pid] for pid in workers) == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]

        await cluster.client.stop("r", 1, 10.0)
        await cluster.until(lambda s: any(r.phase == "stopped" for r in s.replicas))
        eventually(lambda: not any(map(alive, workers)))
