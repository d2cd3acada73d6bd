"""The small decisions of the Ray side: commands, phases, names."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node.engine_guard import KEY_VARIABLE
from elasticd.ray_side.engine_command import EngineCommand, engine_command
from elasticd.ray_side.load_phases import load_phase
from elasticd.ray_side.names import actor_name, parse_actor_name
from tests.ray_side.fake_cluster import order


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


@pytest.mark.parametrize("parser", ["reasoning-parser", "tool-call-parser"])
def test_an_engine_with_a_parser_can_be_gone_on_with_elsewhere(parser: str) -> None:
    assert "--enable-scale-out" not in _command().argv
    assert "--enable-scale-out" in _command(engine_args=((parser, "x"),)).argv
    own = ((parser, "x"), ("enable-scale-out", "false"))
    assert "--enable-scale-out" not in _command(engine_args=own).argv


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
