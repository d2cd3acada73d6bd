"""`elasticd doctor` tells before a launch whether a machine like this one would get in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from elasticd.agent_api.messages import ClusterState, NodeReport
from elasticd.cli.examine import cluster
from elasticd.cli.examine.finding import Level
from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import running_agent

HEAD = {"python": "3.11.7", "ray": "2.60.0", "vllm": "0.32.0"}


def _state(*nodes: NodeReport) -> ClusterState:
    return ClusterState("life", 1, True, True, nodes=nodes, versions=HEAD)


def test_the_same_versions_as_the_running_head_are_fine() -> None:
    [finding] = cluster.compare(HEAD, _state())
    assert finding.level is Level.OK
    assert "Ray 2.60.0" in finding.text


def test_an_upgrade_under_the_running_head_is_told_before_a_machine_is_bought() -> None:
    [finding] = cluster.compare({**HEAD, "ray": "2.61.0"}, _state())
    assert finding.level is Level.FAIL
    assert "Ray 2.61.0, the head has Ray 2.60.0" in finding.text
    assert "restart" in finding.advice


def test_a_machine_that_was_not_let_in_is_told() -> None:
    why = "the machine has Ray 2.59.0, the head has Ray 2.60.0; put the same there"
    _, finding = cluster.compare(HEAD, _state(NodeReport("node-1", False, mismatch=why)))
    assert finding.level is Level.FAIL
    assert finding.text.startswith("node-1 was not let in: the machine has Ray 2.59.0")
    assert finding.advice == "put the same there"


def _look(state_dir: Path, url: str) -> list[Any]:
    listen = SimpleNamespace(url=url)
    settings = SimpleNamespace(agent=SimpleNamespace(listen=listen))
    config = SimpleNamespace(state_dir=state_dir, settings=settings)
    return list(cluster.examine(cast(Any, config)))


async def test_the_agent_that_runs_is_asked(tmp_path: Path) -> None:
    async with running_agent(tmp_path, FakeCluster()) as agent:
        await agent.until_complete()
        [finding] = await asyncio.to_thread(_look, tmp_path, agent.url)
        assert finding.level is Level.OK


def test_without_an_agent_it_says_nothing_and_makes_nothing(tmp_path: Path) -> None:
    assert _look(tmp_path, "http://127.0.0.1:9") == []
    assert list(tmp_path.iterdir()) == []
