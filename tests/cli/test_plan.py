"""`elasticd plan`: what holds a model, at what price, and what would do when nothing does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import main
from elasticd.runtime.source_file import Entry, SourceFile
from tests.core import known_models as known

POOLS = """
cluster: test
state_dir: state
node_pools:
  - {name: small, provider: local, max_nodes: 1, gpus: 4, gpu_kind: A10G, price: "1.00 USD"}
  - {name: large, provider: local, max_nodes: 1, gpus: 1, gpu_kind: L40S, price: "1.20 USD"}
  - {name: odd, provider: local, max_nodes: 1, gpus: 4, gpu_kind: Quantum 9, price: "0.10 USD"}
"""
MODEL = {"name": "m", "source": "file:weights", "engine_args": {"max-model-len": 32768}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(known.QWEN25_14B))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTICD_CONFIG", str(tmp_path / "there-is-none.yaml"))
    monkeypatch.setenv("COLUMNS", "200")


def configured(place: Path, **model: Any) -> str:
    path = place / "elasticd.yaml"
    path.write_text(f"{POOLS}models: [{json.dumps(MODEL | model)}]\n")
    return str(path)


def planned(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert main(["plan", *argv, "--json"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def text(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(["plan", *argv]) == code
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["plan", *argv]) == 2
    return capsys.readouterr().err


def test_the_plan_tells_sizes_tokens_and_prices_of_each_offering(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = planned(capsys, "m", "-c", configured(place, gpus_per_replica="auto"))
    assert told["holds"] is True
    assert told["weight_bytes"] == pytest.approx(29.54e9, rel=0.001)
    assert told["kv_bytes_per_token"] == 192 * 1024
    assert told["tensor_parallel_sizes"] == [1, 2, 4, 8]
    small, large, odd = told["choices"]
    assert (small["pool"], large["pool"], odd["pool"]) == ("small", "large", "odd")
    assert [size["size"] for size in small["tensor_parallel"]] == [2, 4]
    assert small["tensor_parallel"][0]["tokens"] == pytest.approx(49_000, abs=600)
    assert small["tensor_parallel"][0]["requests"] == pytest.approx(1.5, abs=0.1)
    # Two replicas share a machine with four GPUs.
    assert (small["price_micros"], small["replica_price_micros"]) == (1_000_000, 500_000)
    assert (large["gpus_per_replica"], large["replica_price_micros"]) == (1, 1_200_000)
    assert [choice["cheapest"] for choice in told["choices"]] == [True, False, False]


def test_of_unknown_gpus_the_plan_claims_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(place, pools=["odd"])
    told = planned(capsys, "m", "-c", config, code=1)
    assert told["choices"][0]["holds"] is None
    assert told["choices"][0]["problem"] == "memory of GPU kind Quantum 9 is not known"
    assert told["would_fit"] == []
    assert "cannot be said" in text(capsys, "m", "-c", config, code=1)


def test_the_cheapest_is_marked_and_the_reason_stands_beside_what_does_not_hold(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = text(capsys, "m", "-c", configured(place)).splitlines()
    marked = [line for line in lines if line.startswith("  * ")]
    assert len(marked) == 1
    assert "large/" in marked[0]
    assert marked[0].endswith("cheapest")
    assert lines[-1] == "1 of 3 hold it."  # with gpus_per_replica 1 an A10G is too small
    (small,) = (line for line in lines if "small/" in line)
    assert "27.5 GiB of weights" in small


def test_only_the_pools_and_kinds_of_the_model_are_looked_at(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = planned(capsys, "m", "-c", configured(place, pools=["small", "large"]))
    assert {choice["pool"] for choice in told["choices"]} == {"small", "large"}
    told = planned(capsys, "m", "-c", configured(place, accelerators=["L40S"]))
    assert {choice["gpu_kind"] for choice in told["choices"]} == {"L40S"}
    assert "pool odd offers nothing of the kinds that are allowed" in told["notes"]


def test_when_nothing_holds_it_the_plan_says_what_would(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = configured(place, pools=["small"])
    told = planned(capsys, "m", "-c", small, code=1)
    assert told["would_fit"] == [
        "gpus_per_replica: 2, on A10G",
        "4-bit weights, about 9.4 GiB instead of 27.5 GiB",
    ]
    large = configured(place, pools=["large"])
    argv = ("m", "-c", large, "--engine-arg", "max-model-len=100000")
    assert planned(capsys, *argv, code=1)["would_fit"] == [
        "max-model-len 61888 or less, on 1 x L40S",
        "machines with 2 x L40S",
        "8-bit weights, about 15.3 GiB instead of 27.5 GiB",
    ]
    lines = text(capsys, *argv, code=1).splitlines()
    assert "Nothing here holds it." in lines
    assert lines[-3:] == [
        "  · max-model-len 61888 or less, on 1 x L40S",
        "  · machines with 2 x L40S",
        "  · 8-bit weights, about 15.3 GiB instead of 27.5 GiB",
    ]


def test_options_of_the_command_line_stand_over_the_configurations(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(place, pools=["large"])
    usual = planned(capsys, "m", "-c", config)["choices"][0]["tensor_parallel"][0]
    other = planned(
        capsys,
        *("m", "-c", config),
        *("--engine-arg", "kv-cache-dtype=fp8", "--engine-arg", "max-model-len=1K"),
    )["choices"][0]["tensor_parallel"][0]
    assert other["tokens"] == pytest.approx(2 * usual["tokens"], rel=0.001)
    assert other["max_model_len"] == 1024


def test_a_directory_is_planned_over_every_known_gpu_kind_without_a_configuration(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(place / "weights"), "--engine-arg", "max-model-len=32768"]
    told = planned(capsys, *argv)
    sizes = {
        choice["gpu_kind"]: [size["size"] for size in choice["tensor_parallel"]]
        for choice in told["choices"]
    }
    assert sizes["L40S"] == [1, 2, 4, 8]
    assert sizes["A10G"] == [2, 4, 8]
    assert "every known GPU kind" in text(capsys, *argv)


def test_a_directory_is_planned_over_the_pools_of_a_configuration(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = planned(
        capsys, str(place / "weights"), "-c", configured(place), "--engine-arg", "max-model-len=8k"
    )
    assert {choice["pool"] for choice in told["choices"]} == {"small", "large", "odd"}


def test_weights_that_lie_beside_the_config_are_measured(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (place / "weights" / "model.safetensors").open("wb") as file:
        file.truncate(20 * 2**30)  # a hole: no byte of it is on the disk
    told = planned(capsys, "m", "-c", configured(place))
    assert told["weights_measured"] is True
    assert told["weight_bytes"] == pytest.approx(20 * 2**30, abs=64)


def test_a_model_of_a_hub_is_planned_by_what_the_daemon_has_learnt(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(place, source="hf:Qwen/Qwen2.5-14B@main")
    assert "is not known in" in refused(capsys, "m", "-c", config)
    (place / "state").mkdir()
    SourceFile(place / "state").put(
        "hf:Qwen/Qwen2.5-14B@main", Entry("c" * 40, 29_540_067_328, known.QWEN25_14B, True)
    )
    told = planned(capsys, "m", "-c", config)
    assert told["source"] == "hf:Qwen/Qwen2.5-14B@main"
    assert told["weight_bytes"] == pytest.approx(29_540_067_328, abs=64)


def test_what_cannot_be_planned_is_said_in_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(place)
    assert "neither a model" in refused(capsys, "another", "-c", config)
    assert "no configuration" in refused(capsys, "m")
    bad = refused(capsys, "m", "-c", config, "--engine-arg", "max-model-len=long")
    assert "engine options: max-model-len must be" in bad
    assert "write NAME=VALUE" in refused(capsys, "m", "-c", config, "--engine-arg", "=5")
    (place / "weights" / "config.json").write_text("{}")
    assert "config.json has no num_hidden_layers" in refused(capsys, "m", "-c", config)


def test_planning_leaves_the_daemons_state_alone(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(capsys, "m", "-c", configured(place))
    assert not (place / "state").exists()
