"""The node watcher against an agent of the test's own, with a stub in place of Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from elasticd.node import leftovers, versions
from tests.node.fake_agent import FakeAgent
from tests.node.programs import Program, program
from tests.node.stub_smi import StubSmi
from tests.node.waiting import alive, eventually, read_pid

pytestmark = pytest.mark.slow


def _watcher(folder: Path, agent: FakeAgent, **env: str) -> AbstractContextManager[Program]:
    defaults = {"ELASTICD_JOIN_TOKEN": "once", "ELASTICD_NODE_DIR": str(folder / "node")}
    arguments = ("--node-id", "n-1", "--agent", agent.url)
    return program(folder, "elasticd.node.watcher", *arguments, **{**defaults, **env})


def test_it_joins_starts_ray_with_its_label_and_says_up(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent, ELASTICD_DECLARED_GPUS="2") as watcher:
        eventually(lambda: "up" in agent.phases())
        call = watcher.calls()[0]
    assert agent.joins[0]["node_id"] == "n-1"
    assert agent.joins[0]["token"] == "once"
    argv = call["argv"]
    assert argv[argv.index("--address") + 1] == "127.0.0.1:6379"
    assert argv[argv.index("--labels") + 1] == "elasticd-node=n-1"
    assert argv[argv.index("--num-gpus") + 1] == "2"
    assert call["env"]["RAY_from_agent"] == "1"
    assert "starting ray" in agent.phases()


def test_secrets_reach_ray_by_a_private_file_only(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        call = watcher.calls()[0]
    token_file = Path(call["env"]["RAY_AUTH_TOKEN_PATH"])
    assert token_file.read_text() == "ray-secret"
    assert token_file.stat().st_mode & 0o777 == 0o600
    told = json.dumps(call)
    assert not any(secret in told for secret in ("ray-secret", "report-secret", "once"))


def test_without_declared_gpus_ray_counts_the_real_ones(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.ray
        assert "--num-gpus" not in watcher.calls()[0]["argv"]


def test_it_asks_on_while_the_agent_is_away_always_as_the_same_machine(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.join_status = [503, 503, 200]
    with _watcher(tmp_path, agent):
        eventually(lambda: "up" in agent.phases())
    assert len(agent.joins) == 3
    assert len({join["nonce"] for join in agent.joins}) == 1
    assert agent.joins[0]["nonce"]


def test_a_refused_token_ends_it_with_one_message(tmp_path: Path, agent: FakeAgent) -> None:
    agent.join_status = [403]
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.process.wait(20) == 1
    assert "not let in" in watcher.said()
    assert "Traceback" not in watcher.said()


def test_a_failed_ray_start_is_tried_again(tmp_path: Path, agent: FakeAgent) -> None:
    (tmp_path / "manner").write_text("fails once")
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        assert len(watcher.calls()) == 2


def test_ray_that_never_starts_is_reported_with_its_last_line(
    tmp_path: Path, agent: FakeAgent
) -> None:
    (tmp_path / "manner").write_text("fails")
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.process.wait(60) == 1
    assert agent.phases()[-1].startswith("failed: ray did not start in 3 tries")
    assert "timed out during startup" in agent.reports[-1]["log_tail"]


def test_when_ray_dies_it_sweeps_what_is_left_and_joins_again(
    tmp_path: Path, agent: FakeAgent
) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        first, child = watcher.ray, watcher.rays_child
        os.kill(first, signal.SIGKILL)
        eventually(lambda: len(watcher.calls()) == 2)
        assert not alive(child)
        eventually(lambda: agent.phases()[-1] == "up" and watcher.ray != first)
    assert "joining again: Ray ended by itself (exit -9)" in agent.phases()
    assert len({(join["token"], join["nonce"]) for join in agent.joins}) == 1
    assert any("joining again" in line for line in agent.reports[-1]["log_tail"])


def test_ray_that_never_lasts_is_given_up_and_reported(tmp_path: Path, agent: FakeAgent) -> None:
    (tmp_path / "manner").write_text("dies")
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.process.wait(60) == 1
        assert len(watcher.calls()) == 4
    assert agent.phases()[-1] == "failed: Ray ended by itself (exit 3), 4 times in a row"


def test_it_joins_again_when_only_rays_node_process_is_gone(
    tmp_path: Path, agent: FakeAgent
) -> None:
    (tmp_path / "manner").write_text("has a raylet")
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        first, raylet = watcher.ray, read_pid(tmp_path / "raylet")
        os.kill(raylet, signal.SIGTERM)
        eventually(lambda: len(watcher.calls()) == 2)
        assert not alive(first)
    assert "joining again: Ray's node process was ended by somebody else" in agent.phases()


def test_a_machine_that_must_not_join_says_why_and_never_starts_ray(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.refused = "the machine has Ray 2.59.0, the head has Ray 2.60.0; change it"
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.process.wait(20) == 1
        assert watcher.calls() == []
    assert agent.phases()[-1] == f"failed: {agent.refused}"
    assert f"elasticd node: not joined: {agent.refused}" in watcher.said()
    assert any("2.59.0" in line for line in agent.reports[-1]["log_tail"])


def test_it_tells_its_versions_when_it_joins_and_with_every_report(
    tmp_path: Path, agent: FakeAgent
) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
    told = agent.joins[0]["versions"]
    assert told == agent.reports[-1]["versions"] == versions.installed()
    assert f"Python {told['python']}, elasticd {told['elasticd']}" in watcher.said()


def test_what_it_says_before_ray_is_there_is_in_the_reports(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.join_status = [503, 200]
    declared = {"ELASTICD_DECLARED_GPUS": "2", "ELASTICD_DECLARED_GPUS_LATE": "inf"}
    with _watcher(tmp_path, agent, **declared):
        eventually(lambda: "waiting for GPUs: 0 of 2" in agent.phases())
    tail = "\n".join(agent.reports[-1]["log_tail"])
    assert "machine n-1: Python" in tail
    assert "agent away, asking on" in tail


def test_sigterm_ends_everything_of_the_machine(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        ray, child = watcher.ray, watcher.rays_child
        watcher.process.terminate()
        assert watcher.process.wait(20) == 0
        assert not alive(ray)
        assert not alive(child)


def test_sigterm_also_ends_it_while_it_asks_to_join(tmp_path: Path, agent: FakeAgent) -> None:
    agent.join_status = [503]
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: agent.joins)
        watcher.process.terminate()
        assert watcher.process.wait(20) == 0


def test_killed_it_takes_ray_along(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        ray, child = watcher.ray, watcher.rays_child
        watcher.process.kill()
        eventually(lambda: not alive(ray))
        os.kill(child, signal.SIGKILL)  # on a machine of its own the PID namespace does this


def test_ray_is_not_started_before_the_machine_shows_the_gpus_it_is_to_have(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = StubSmi(tmp_path / "smi", gpus=1)
    smi.install(monkeypatch)
    (smi.folder / "broken").touch()
    with _watcher(tmp_path, agent, ELASTICD_EXPECTED_GPUS="1") as watcher:
        eventually(lambda: any("waiting for GPUs: 0 of 1" in phase for phase in agent.phases()))
        assert watcher.calls() == []
        (smi.folder / "broken").unlink()
        eventually(lambda: "up" in agent.phases())
    waiting = next(phase for phase in agent.phases() if phase.startswith("waiting for GPUs"))
    assert "nvidia-smi" in waiting


def test_gpus_that_never_appear_are_waited_for_until_the_machine_is_given_up(
    tmp_path: Path, agent: FakeAgent
) -> None:
    declared = {"ELASTICD_DECLARED_GPUS": "2", "ELASTICD_DECLARED_GPUS_LATE": "inf"}
    with _watcher(tmp_path, agent, **declared) as watcher:
        eventually(lambda: "waiting for GPUs: 0 of 2" in agent.phases())
        watcher.process.terminate()
        assert watcher.process.wait(20) == 0
        assert watcher.calls() == []
    assert agent.phases()[-1] == "ending"


def test_a_host_mask_reaches_ray_as_it_is(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with _watcher(tmp_path, agent, ELASTICD_DECLARED_GPUS="2") as watcher:
        assert watcher.ray
        assert watcher.calls()[0]["env"]["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_more_gpus_than_the_host_mask_leaves_is_one_clear_message(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with _watcher(tmp_path, agent, ELASTICD_DECLARED_GPUS="4") as watcher:
        assert watcher.process.wait(20) == 1
    assert "4 GPUs are declared, but CUDA_VISIBLE_DEVICES='2,3' leaves 2" in watcher.said()


@pytest.mark.parametrize("name", ["ELASTICD_DECLARED_GPUS", "ELASTICD_EXPECTED_GPUS"])
def test_a_number_of_gpus_that_is_none_is_one_clear_message(
    tmp_path: Path, agent: FakeAgent, name: str
) -> None:
    with _watcher(tmp_path, agent, **{name: "two"}) as watcher:
        assert watcher.process.wait(20) == 1
    assert f"{name}='two' is not a number" in watcher.said()


def test_killed_and_started_again_it_sweeps_joins_anew_and_tells_how_it_ended(
    tmp_path: Path, agent: FakeAgent
) -> None:
    with _watcher(tmp_path, agent) as watcher:
        eventually(lambda: "up" in agent.phases())
        ray, child = watcher.ray, watcher.rays_child
        watcher.process.kill()
        eventually(lambda: not alive(ray))
        assert alive(child)
    agent.reports.clear()
    with _watcher(tmp_path, agent) as again:
        eventually(lambda: "up" in agent.phases())
        assert not alive(child)
        assert "ended 1 processes of an earlier life" in again.said()
    assert len({join["nonce"] for join in agent.joins}) == 1
    assert "[the watcher was started again; before, it said: up]" in agent.reports[0]["log_tail"]
    assert "Ray runtime started." in agent.reports[0]["log_tail"]


def test_a_second_watcher_of_one_machine_refuses(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent) as first:
        ray = first.ray
        with _watcher(tmp_path, agent) as second:
            assert second.process.wait(20) == 1
        assert "a watcher already runs in" in first.said()
        assert alive(ray)


def test_an_engine_whose_supervisor_was_killed_does_not_stay_on_the_machine(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _watcher(tmp_path, agent) as watcher:
        assert watcher.ray
        mark = leftovers.mark(tmp_path / "node", 1)[:-1] + "x"  # a supervisor that is no more
        with subprocess.Popen(["sleep", "600"], env={leftovers.MARKER: mark}) as orphan:
            assert orphan.wait(20) == -signal.SIGKILL


def test_a_missing_token_is_one_clear_message(tmp_path: Path, agent: FakeAgent) -> None:
    with _watcher(tmp_path, agent, ELASTICD_JOIN_TOKEN="") as watcher:
        assert watcher.process.wait(20) == 1
    assert "ELASTICD_JOIN_TOKEN is not set" in watcher.said()
