"""The agent as its callers meet it: HTTP, tokens, long polls, joins. Ray is a fake."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from elasticd.agent_api.client import AgentClient, AgentRefused, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaReport
from elasticd.cluster_secret import ClusterSecret
from elasticd.errors import ElasticdError
from elasticd.ray_side import agent as agent_module
from elasticd.ray_side import replicas as replicas_module
from elasticd.ray_side.agent import AgentLost
from elasticd.ray_side.cluster import DriverLost, RayNode
from tests.ray_side.fake_cluster import FakeCluster, order, report
from tests.ray_side.running_agent import RunningAgent, running_agent


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "LOOK", 0.01)
    monkeypatch.setattr(replicas_module, "POLL", 0.01)
    monkeypatch.setattr(replicas_module, "RETRY", 0.01)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[RunningAgent]:
    async with running_agent(tmp_path, FakeCluster()) as running:
        yield running


async def _ask(
    agent: RunningAgent, method: str, path: str, token: str = "", **more: Any
) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, agent.url + path, headers=headers, **more) as answer,
    ):
        return answer.status, await answer.json()


async def _join(agent: RunningAgent, nonce: str = "mine", **more: str) -> tuple[int, Any]:
    body = {"node_id": "n-9", "token": agent.secret.join_token("n-9"), "nonce": nonce, **more}
    return await _ask(agent, "POST", "/v1/nodes/join", json=body)


async def _until(agent: RunningAgent, phase: str) -> tuple[ClusterState, ReplicaReport]:
    state = await agent.client.state()
    async with asyncio.timeout(10):
        while not any(r.phase == phase for r in state.replicas):
            state = await agent.client.state(state.incarnation, state.version, 5.0)
    return state, next(r for r in state.replicas if r.phase == phase)


async def test_the_state_holds_nodes_and_versions(agent: RunningAgent) -> None:
    state = await agent.until_complete()
    assert [(n.node_id, n.alive, n.gpus, n.address) for n in state.nodes] == [
        ("n-1", True, 2, "10.0.0.1")
    ]
    assert state.head_alive
    assert state.detail == ""
    assert {"elasticd", "ray", "python"} <= set(state.versions)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/state"),
        ("PUT", "/v1/replicas/r-1"),
        ("DELETE", "/v1/replicas/r-1?incarnation=1"),
        ("POST", "/v1/nodes/n-1/drain"),
        ("POST", "/v1/nodes/n-1/report"),
    ],
)
async def test_nothing_is_told_or_done_without_the_token(
    agent: RunningAgent, method: str, path: str
) -> None:
    for token in ("", "wrong", agent.secret.ray_token, agent.secret.report_token("n-2")):
        status, answer = await _ask(agent, method, path, token, json={})
        assert status == 401
        assert answer == {"error": "wrong or missing token"}


async def test_a_long_poll_returns_when_something_happens(agent: RunningAgent) -> None:
    state = await agent.until_complete()
    waiting = asyncio.create_task(agent.client.state(state.incarnation, state.version, 30.0))
    await agent.client.start(order())
    news = await asyncio.wait_for(waiting, 10)
    assert news.version > state.version
    assert [r.replica_id for r in news.replicas] == ["r-1"]


async def test_a_long_poll_without_news_returns_the_same_version(agent: RunningAgent) -> None:
    state = await agent.until_complete()
    again = await agent.client.state(state.incarnation, state.version, 0.1)
    assert again.version == state.version


async def test_another_incarnation_is_answered_at_once(agent: RunningAgent) -> None:
    state = await agent.until_complete()
    other = await asyncio.wait_for(agent.client.state("earlier", state.version + 99, 60.0), 5)
    assert other.incarnation == state.incarnation


async def test_counters_ages_and_log_lines_make_no_new_version(agent: RunningAgent) -> None:
    await agent.until_complete()
    await agent.client.start(order())
    agent.cluster.actors["r-1#1"] = report(generated_tokens=1)
    state, _ = await _until(agent, "ready")
    agent.cluster.actors["r-1#1"] = report(
        generated_tokens=2, running=3, since_start=9.0, stderr_tail=("line",)
    )
    async with asyncio.timeout(10):
        fresh = await agent.client.state()
        while fresh.replicas[0].generated_tokens != 2:
            fresh = await agent.client.state()
    assert fresh.version == state.version


async def test_orders_are_idempotent_and_lower_incarnations_refused(agent: RunningAgent) -> None:
    await agent.until_complete()
    for _ in range(2):
        await agent.client.start(order(incarnation=2))
    with pytest.raises(AgentRefused, match="incarnation 1 is over"):
        await agent.client.start(order(incarnation=1))
    await _until(agent, "starting")
    assert agent.cluster.asked("create") == ["r-1#2"]


async def test_an_order_for_a_node_ray_does_not_have_is_refused(agent: RunningAgent) -> None:
    await agent.until_complete()
    with pytest.raises(AgentRefused, match="node n-7 is not alive"):
        await agent.client.start(order(node_id="n-7"))


async def test_a_stop_travels_to_the_actor(agent: RunningAgent) -> None:
    await agent.until_complete()
    await agent.client.start(order())
    agent.cluster.actors["r-1#1"] = report()
    await _until(agent, "ready")
    await agent.client.stop("r-1", 1, 5.0)
    agent.cluster.actors["r-1#1"] = report(phase="stopped")
    await _until(agent, "stopped")
    assert ("stop", "r-1#1") in agent.cluster.calls


async def test_without_the_head_nothing_is_claimed_and_no_order_taken(agent: RunningAgent) -> None:
    await agent.until_complete()
    agent.cluster.actors["r-1#1"] = report()
    await _until(agent, "ready")
    agent.cluster.head_away = "Ray head 1.2.3.4:5 does not answer"
    state = await agent.client.state()
    async with asyncio.timeout(10):
        while state.head_alive:
            state = await agent.client.state(state.incarnation, state.version, 5.0)
    assert not state.complete
    assert state.detail == "Ray head 1.2.3.4:5 does not answer"
    assert state.nodes[0].alive is None
    assert state.replicas[0].phase == "ready"
    with pytest.raises(AgentUnreachable, match="does not answer; ask again"):
        await agent.client.start(order("r-2"))
    with pytest.raises(AgentUnreachable):
        await agent.client.stop("r-9", 1, 0.0)
    agent.cluster.head_away = ""
    await agent.until_complete()


async def test_it_serves_at_once_while_the_head_was_never_there(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.head_away = "no head"
    async with running_agent(tmp_path, cluster) as agent:
        state = await agent.client.state()
        assert (state.complete, state.head_alive) == (False, False)
        assert (await _join(agent))[0] == 503


async def test_a_restarted_agent_finds_the_replicas_and_is_complete_only_then(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    cluster.actors = {"r-1#4": report(incarnation=4), "r-2#1": report("r-2")}
    cluster.silent.add("r-2#1")
    async with running_agent(tmp_path, cluster) as agent:
        state = await agent.until_complete()
        seen = {r.replica_id: (r.incarnation, r.phase) for r in state.replicas}
        assert seen == {"r-1": (4, "ready"), "r-2": (1, "unknown")}
    assert cluster.closed
    assert cluster.asked("kill") == []


async def test_a_join_token_works_once_and_again_for_the_same_machine_only(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path, FakeCluster()) as agent:
        await agent.until_complete()
        assert (await _join(agent, token="guess"))[0] == 401
        status, answer = await _join(agent)
        assert status == 200
        assert answer["ray_token"] == agent.secret.ray_token
        assert answer["ray_address"] == "127.0.0.1:6379"
        assert answer["ray_env"]["RAY_AUTH_MODE"] == "token"
        assert (await _join(agent))[0] == 200
        assert (await _join(agent, nonce="a thief's"))[0] == 403
    async with running_agent(tmp_path, FakeCluster()) as restarted:
        await restarted.until_complete()
        assert (await _join(restarted, nonce="a thief's"))[0] == 403
        assert (await _join(restarted))[0] == 200


async def test_a_watchers_report_is_shown_and_does_not_mean_alive(agent: RunningAgent) -> None:
    await agent.until_complete()
    body = {"boot": "starting ray", "log_tail": ["a line"], "key_of_a_later_version": 1}
    token = agent.secret.report_token("n-9")
    assert (await _ask(agent, "POST", "/v1/nodes/n-9/report", token, json=body))[0] == 200
    node = next(n for n in (await agent.client.state()).nodes if n.node_id == "n-9")
    assert (node.boot, node.alive, node.log_tail) == ("starting ray", False, ("a line",))
    assert node.watcher_age is not None


async def test_a_machine_with_a_living_and_a_dead_entry_is_alive(agent: RunningAgent) -> None:
    agent.cluster.ray_nodes.append(RayNode("n-1", "ray-old", False, "10.0.0.1", 2))
    state = await agent.until_complete()
    assert [(n.ray_node_id, n.alive) for n in state.nodes] == [("ray-1", True)]


async def test_a_drain_reaches_ray_by_its_own_id_and_not_twice(agent: RunningAgent) -> None:
    await agent.until_complete()
    await agent.client.drain_node("n-1")
    assert agent.cluster.asked("drain") == ["ray-1"]
    await agent.client.drain_node("n-unknown")
    assert agent.cluster.asked("drain") == ["ray-1"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/replicas/r-1", b"{"),
        ("PUT", "/v1/replicas/r-1", b"[]"),
        ("PUT", "/v1/replicas/r-1", b'{"replica_id": "r-1"}'),
        ("DELETE", "/v1/replicas/r-1", b""),
        ("DELETE", "/v1/replicas/r-1?incarnation=x", b""),
        ("DELETE", "/v1/replicas/r-1?incarnation=1&grace=nan", b""),
        ("GET", "/v1/state?wait=-5", b""),
    ],
)
async def test_nonsense_is_refused_with_a_message(
    agent: RunningAgent, method: str, path: str, body: bytes
) -> None:
    await agent.until_complete()
    status, answer = await _ask(agent, method, path, agent.secret.agent_token, data=body)
    assert status == 400
    assert answer["error"]


async def test_a_driver_that_cannot_go_on_ends_the_agent(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with running_agent(tmp_path, cluster) as agent:
        await agent.until_complete()
        cluster.lost = DriverLost("the head was restarted")
        with pytest.raises(AgentLost, match="the head was restarted"):
            await asyncio.wait_for(agent.task, 10)
    assert cluster.closed


async def test_a_busy_port_is_one_clear_message(tmp_path: Path) -> None:
    secret = ClusterSecret.load_or_create(tmp_path)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        config = agent_module.AgentConfig(tmp_path, "127.0.0.1:6379", port=port)
        with pytest.raises(ElasticdError, match=f"cannot listen on 127.0.0.1:{port}"):
            await agent_module.serve_cluster(config, secret, FakeCluster())


async def test_a_client_without_an_agent_says_unreachable() -> None:
    async with AgentClient("http://127.0.0.1:9", "t") as client:
        with pytest.raises(AgentUnreachable, match=r"http://127\.0\.0\.1:9"):
            await client.state()
