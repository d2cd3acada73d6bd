"""A GPU that is not free is kept out of use until it is: its replica's actor lives on."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.ray_side.fake_cluster import order, report
from tests.ray_side.test_replicas import Desk, desk  # noqa: F401 (a fixture)

SENTENCE = "GPU 1 is held by pid 42 (python)"


def _held(**more: Any) -> Any:
    return report(phase="stopped", error="no engine was started", holding=(SENTENCE,), **more)


async def test_the_actor_of_a_gpu_that_is_not_free_is_not_killed(desk: Desk) -> None:  # noqa: F811
    desk.replicas.order(order())
    await desk.until(lambda: desk.cluster.asked("start"))
    desk.cluster.actors["r-1#1"] = _held()
    stopped = await desk.until_phase("stopped")
    assert (stopped.error, stopped.holding) == ("no engine was started", (SENTENCE,))
    desk.replicas.stop("r-1", 1, 0.0)
    desk.cluster.silent.add("r-1#1")
    await asyncio.sleep(0)
    desk.cluster.silent.clear()
    desk.cluster.dies("r-1#1", "it let go")
    await desk.until(lambda: not desk.one().holding)
    assert (desk.one().phase, desk.one().error) == ("stopped", "no engine was started")
    assert desk.cluster.asked("kill") == []


async def test_a_restarted_agent_finds_what_is_kept_back(desk: Desk) -> None:  # noqa: F811
    desk.cluster.actors["r-1#1"] = _held()
    desk.replicas.adopt(["r-1#1"])
    await desk.until_phase("stopped")
    assert desk.one().holding == (SENTENCE,)
    assert desk.cluster.asked("kill") == []
