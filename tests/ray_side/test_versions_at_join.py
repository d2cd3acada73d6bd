"""A machine whose versions differ from the head's does not get in, and everybody learns why."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticd.agent_api.messages import NodeReport
from elasticd.node import versions
from elasticd.node.versions import ABSENT
from elasticd.ray_side import agent as agent_module
from tests.node.programs import STUB_RAY
from tests.ray_side.fake_cluster import FakeCluster
from tests.ray_side.running_agent import RunningAgent, running_agent

HEAD = {"python": "3.11.7", "ray": "2.60.0", "vllm": "0.32.0", "elasticd": "0.1.0", "wire": "1"}
OTHER_PATCH = Path("/usr/bin/python3.11")
DAEMON = Path(agent_module.__file__).parents[2]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "LOOK", 0.01)


@pytest.fixture
async def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningAgent]:
    with monkeypatch.context() as patch:
        patch.setattr(versions, "installed", lambda: HEAD)
        async with running_agent(tmp_path / "state", FakeCluster()) as running:
            await running.until_complete()
            yield running


async def test_a_machine_in_step_gets_the_way_into_ray(agent: RunningAgent) -> None:
    status, answer = await agent.join("n-9", versions=HEAD)
    assert (status, answer["refused"]) == (200, "")
    assert answer["ray_token"]
    assert (await agent.node("n-9")).mismatch == ""


async def test_a_machine_of_another_ray_is_told_not_to_join_and_gets_no_secret(
    agent: RunningAgent,
) -> None:
    status, answer = await agent.join("n-9", versions={**HEAD, "ray": "2.59.0"})
    assert status == 200
    assert "Ray 2.59.0" in answer["refused"]
    assert "Ray 2.60.0" in answer["refused"]
    assert (answer["ray_token"], answer["ray_address"], answer["ray_env"]) == ("", "", {})
    node = await agent.node("n-9")
    assert node.mismatch == answer["refused"]
    assert node.boot == f"failed: {answer['refused']}"
    await agent.report("n-9", node.boot, log_tail=["the end"])
    assert (await agent.node("n-9")).mismatch == answer["refused"]
    assert (await agent.node("n-9")).log_tail == ("the end",)


async def test_a_watcher_that_tells_no_versions_joins_as_before(agent: RunningAgent) -> None:
    status, answer = await agent.join("n-9")
    assert (status, answer["refused"]) == (200, "")
    assert answer["ray_token"]


async def test_versions_that_are_none_are_refused_as_a_request_or_left_out(
    agent: RunningAgent,
) -> None:
    assert (await agent.join("n-9", versions="2.60.0"))[0] == 400
    status, answer = await agent.join("n-9", versions={"ray": ["2.59.0"], "python": "3\n"})
    assert (status, answer["refused"]) == (200, "")


async def test_a_machine_that_was_corrected_is_let_in(agent: RunningAgent) -> None:
    await agent.join("n-9", versions={**HEAD, "python": "3.11.2"})
    assert (await agent.node("n-9")).mismatch
    _, answer = await agent.join("n-9", versions=HEAD)
    assert answer["ray_token"]
    assert (await agent.node("n-9")).mismatch == ""


async def test_where_the_head_has_no_vllm_all_machines_must_have_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed", lambda: {**HEAD, "vllm": ABSENT})
    async with running_agent(tmp_path, FakeCluster()) as agent:
        await agent.until_complete()
        _, first = await agent.join("n-8", versions=HEAD)
        assert first["refused"] == ""
        _, second = await agent.join("n-9", versions={**HEAD, "vllm": "0.31.0"})
        assert "vLLM 0.31.0, the other machines have vLLM 0.32.0" in second["refused"]
        # What has been refused is no example to others.
        _, third = await agent.join("n-7", versions={**HEAD, "vllm": "0.31.0"})
        assert third["refused"]


def _distribution(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


async def _refused_machine(
    folder: Path, agent: RunningAgent, python: str, path: list[Path]
) -> tuple[NodeReport, str]:
    """A real watcher in such an environment: what the agent says of it, and the machine's log."""
    log = folder / "machine.log"
    with log.open("wb") as out:
        watcher = subprocess.Popen(
            [python, "-m", "elasticd.node.watcher", "--node-id", "n-9", "--agent", agent.url],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, path)),
                "STUB_RAY_DIR": str(folder),
                "ELASTICD_JOIN_TOKEN": agent.secret.join_token("n-9"),
                "ELASTICD_NODE_DIR": str(folder / "node"),
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        assert await asyncio.to_thread(watcher.wait, 30) == 1
    finally:
        watcher.kill()
        watcher.wait()
    assert not (folder / "calls").exists(), "Ray was started"
    return await agent.node("n-9"), log.read_text()


def _check_told(node: NodeReport, log: str, *words: str) -> None:
    for word in words:
        assert word in node.mismatch
        assert word in log
    assert node.boot == f"failed: {node.mismatch}"
    assert any(node.mismatch in line for line in node.log_tail)
    assert "Traceback" not in log


async def test_a_real_watcher_of_another_ray_stays_out_and_both_versions_are_printed(
    tmp_path: Path,
) -> None:
    own = versions.installed()["ray"]
    site = tmp_path / "site"
    _distribution(site, "ray", "2.59.0")
    async with running_agent(tmp_path / "state", FakeCluster()) as agent:
        await agent.until_complete()
        node, log = await _refused_machine(tmp_path, agent, sys.executable, [site, STUB_RAY])
    _check_told(node, log, "Ray 2.59.0", f"Ray {own}")


async def test_a_real_watcher_of_another_vllm_stays_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {**versions.installed(), "vllm": "0.32.0"}
    site = tmp_path / "site"
    _distribution(site, "vllm", "0.31.0")
    with monkeypatch.context() as patch:
        patch.setattr(versions, "installed", lambda: own)
        async with running_agent(tmp_path / "state", FakeCluster()) as agent:
            await agent.until_complete()
            node, log = await _refused_machine(tmp_path, agent, sys.executable, [site, STUB_RAY])
    _check_told(node, log, "vLLM 0.31.0", "vLLM 0.32.0")


async def test_a_real_watcher_of_another_patch_level_of_python_stays_out(tmp_path: Path) -> None:
    own = versions.installed()
    site = tmp_path / "site"
    _distribution(site, "ray", own["ray"])
    _distribution(site, "vllm", own["vllm"])
    python, other = _other_python(site, own["python"])
    async with running_agent(tmp_path / "state", FakeCluster()) as agent:
        await agent.until_complete()
        node, log = await _refused_machine(tmp_path, agent, python, [site, STUB_RAY, DAEMON])
    _check_told(node, log, f"Python {other}", f"Python {own['python']}")


def _other_python(site: Path, own: str) -> tuple[str, str]:
    """A real one where there is one, else ours that says so of itself; and its version."""
    if OTHER_PATCH.exists():
        said = subprocess.run(
            [OTHER_PATCH, "--version"], capture_output=True, text=True, check=True
        )
        other = said.stdout.split()[1]
        if other != own:
            return str(OTHER_PATCH), other
    (site / "sitecustomize.py").write_text(
        "import platform\nplatform.python_version = lambda: '3.11.99'\n"
    )
    return sys.executable, "3.11.99"
