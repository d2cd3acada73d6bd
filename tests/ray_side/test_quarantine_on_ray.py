"""On real Ray: a GPU that something still holds is given to nobody until it is free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.agent_api.messages import ClusterState
from tests.ray_side.small_cluster import small_cluster

pytestmark = pytest.mark.e2e

STUB = str(Path(__file__).parent / "stub_engine.py")


async def test_a_gpu_that_is_not_free_is_out_of_use_until_it_is() -> None:
    async with small_cluster() as cluster:
        cluster.start_head_and_agent()
        cluster.start_node("n", 1)
        await cluster.until(lambda s: any(n.alive and n.gpus == 1 for n in s.nodes))
        options = ["n", "--folder", str(cluster.folder / "n"), "--gpu", "0", "--"]
        argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", *options]
        engine = ["sh", "-c", "echo runs; sleep 600"]
        with subprocess.Popen([*argv, *engine], stdin=-1, stdout=-1) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdout.readline()
            for replica_id in ("r-1", "r-2"):
                words = (sys.executable, STUB, "{port}")
                await cluster.client.start(
                    cluster.order(replica_id, "n", 1, engine_kind="command", engine_argv=words)
                )

            def is_held(state: ClusterState) -> bool:
                return any("GPU 0 is held by pid" in one for n in state.nodes for one in n.held)

            state = await cluster.until(is_held)
            first, second = sorted(state.replicas, key=lambda r: r.phase != "stopped")
            assert first.phase == "stopped"
            assert "GPU 0 is held by pid" in first.error
            assert second.phase == "starting"
            assert second.gpu_ids == ()
            holder.stdin.close()
            await cluster.until_ready(second.replica_id)
            await cluster.until(lambda s: not any(n.held for n in s.nodes))
