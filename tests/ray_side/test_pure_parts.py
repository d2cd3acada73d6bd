"""The small decisions of the Ray side: commands, devices, counters, phases, names."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node.engine_guard import KEY_VARIABLE
from elasticd.ray_side.devices import DeviceMismatch, check_devices
from elasticd.ray_side.engine_command import EngineCommand, engine_command
from elasticd.ray_side.load_phases import load_phase
from elasticd.ray_side.names import actor_name, parse_actor_name
from elasticd.ray_side.progress import Counters, Progress, read_counters
from tests.ray_side.fake_cluster import order

METRICS = """# HELP vllm:num_requests_running running
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 400.0
vllm:generation_tokens_total{engine="0"} 1.5e+03
vllm:generation_tokens_created{engine="0"} 1.7e+09
"""


def _command(environ: dict[str, str] | None = None, **more: object) -> EngineCommand:
    return engine_command(order(**more), 20007, ("0", "3"), "/py", environ or {})


def test_vllm_is_started_by_module_behind_the_guard() -> None:
    argv = _command(engine_args=(("max-model-len", "512"),)).argv
    assert argv[:3] == ("/py", "-m", "vllm.entrypoints.openai.api_server")
    pairs = dict(zip(argv[3::2], argv[4::2], strict=True))
    assert pairs == {
        "--model": "/models/m",
        "--served-model-name": "m",
        "--host": "127.0.0.1",
        "--port": "20007",
        "--middleware": "elasticd.node.engine_guard.KeyGuard",
        "--max-model-len": "512",
    }


def test_switches_become_bare_options() -> None:
    argv = _command(engine_args=(("enforce-eager", "true"), ("prefix-caching", "false"))).argv
    assert argv[-2:] == ("--enforce-eager", "--no-prefix-caching")


def test_several_gpus_mean_tensor_parallel_unless_the_model_says_otherwise() -> None:
    assert _command(gpus=2).argv[-2:] == ("--tensor-parallel-size", "2")
    own = (("tensor-parallel-size", "1"),)
    assert _command(gpus=2, engine_args=own).argv[-2:] == ("--tensor-parallel-size", "1")


def test_the_key_is_in_the_environment_and_never_in_the_arguments() -> None:
    for kind, argv in (("vllm", ()), ("command", ("serve", "{port}"))):
        command = _command(engine_kind=kind, engine_argv=argv)
        assert command.env[KEY_VARIABLE] == "the-engine-key"
        assert not any("the-engine-key" in word for word in command.argv)


def test_a_command_has_its_placeholders_filled() -> None:
    argv = ("serve", "--at=:{port}", "{model}", "{gpus}", "{other}")
    command = _command(engine_kind="command", engine_argv=argv)
    assert command.argv == ("serve", "--at=:20007", "/models/m", "0,3", "{other}")


def test_rays_own_words_do_not_reach_the_engine() -> None:
    environ = {
        "RAY_AUTH_TOKEN_PATH": "/t",
        "ELASTICD_JOIN_TOKEN": "j",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "0,3",
        "PATH": "/bin",
    }
    env = _command(environ, engine_env=(("OMP_NUM_THREADS", "4"),)).env
    assert not {"RAY_AUTH_TOKEN_PATH", "ELASTICD_JOIN_TOKEN"} & set(env)
    assert env["OMP_NUM_THREADS"] == "4"
    assert env["CUDA_VISIBLE_DEVICES"] == "0,3"
    assert "OMP_NUM_THREADS" not in _command(environ).env


def test_a_local_model_never_asks_the_network(tmp_path: Path) -> None:
    assert _command(model_path=str(tmp_path)).env["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in _command(model_path="org/name").env
    assert _command().env["VLLM_NO_USAGE_STATS"] == "1"


def test_an_unknown_engine_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'sglang' is not known"):
        _command(engine_kind="sglang")


def _never() -> frozenset[str] | None:
    raise AssertionError("declared GPUs are nowhere to be listed")


DECLARED = {"ELASTICD_DECLARED_GPUS": "4"}


def test_devices_that_agree_are_handed_on_as_the_process_sees_them() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1,3", **DECLARED}
    assert check_devices(2, ("1", "3"), environ, _never) == ("1", "3")
    real = {"CUDA_VISIBLE_DEVICES": "1,3"}
    there = frozenset({"0", "1", "2", "3", "GPU-a"})
    assert check_devices(2, ("1", "3"), real, lambda: there) == ("1", "3")


@pytest.mark.parametrize(
    ("assigned", "environ", "message"),
    [
        (("0",), {"CUDA_VISIBLE_DEVICES": "0", **DECLARED}, "2 GPUs ordered"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "0", **DECLARED}, "shows"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "1,0", **DECLARED}, "shows"),
        (("0", "1"), DECLARED, "none of CUDA_VISIBLE_DEVICES"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "0,1"}, "nvidia-smi lists none"),
    ],
)
def test_devices_that_differ_are_a_clear_failure(
    assigned: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(DeviceMismatch, match=message):
        check_devices(2, assigned, environ, lambda: None)


def test_a_device_that_is_not_there_is_a_clear_failure() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(DeviceMismatch, match="nvidia-smi lists"):
        check_devices(1, ("7",), environ, lambda: frozenset({"0"}))


def test_counters_are_added_over_their_labels_and_not_mixed_up() -> None:
    assert read_counters(METRICS) == Counters(running=3, waiting=4, generated=1500)


def test_an_engine_without_these_counters_tells_nothing() -> None:
    assert read_counters("other_total 1\n") == Counters(None, None, None)


def test_progress_stalls_only_while_requests_run_without_tokens() -> None:
    progress = Progress()
    assert progress.observe(0.0, Counters(0, 0, 10)) is None
    assert progress.observe(1.0, Counters(1, 0, 10)) == 0.0
    assert progress.observe(5.0, Counters(1, 0, 10)) == 4.0
    assert progress.observe(6.0, Counters(1, 0, 11)) == 0.0
    assert progress.observe(9.0, Counters(1, 0, 11)) == 3.0
    assert progress.observe(10.0, Counters(0, 0, 11)) is None
    assert progress.observe(11.0, Counters(None, None, None)) is None


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("(EngineCore pid=1) INFO Initializing a V1 LLM engine (v0.32.0)", "starting engine core"),
        ("Loading safetensors checkpoint shards:  50% Completed | 2/4", "loading weights 50%"),
        ("INFO Loading weights took 3.2 seconds", "weights loaded"),
        ("INFO Enforce eager set, disabling torch.compile, CUDAGraphs", None),
        ("INFO CPU KV cache size: 131,072 tokens", "KV cache ready"),
        ("INFO init engine (profile, create kv cache, warmup model) took 1.33 s", "engine ready"),
        ("INFO Starting vLLM server on http://127.0.0.1:1", "starting API"),
        ("anything else", None),
    ],
)
def test_load_phases_are_read_from_the_engines_lines(line: str, phase: str | None) -> None:
    assert load_phase(line) == phase


def test_actor_names_round_trip_and_strangers_are_seen() -> None:
    assert parse_actor_name(actor_name("r#1-2", 3)) == ("r#1-2", 3)
    assert [parse_actor_name(n) for n in ("plain", "#1", "r#", "r#x", "r#-1")] == [None] * 5
