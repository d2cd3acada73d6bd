"""The settings as the core gets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticd.core.fit import read_shape
from elasticd.core.specs import ModelSpec
from elasticd.errors import UsageError
from elasticd.settings.fleet import hub_sources, to_fleet
from elasticd.settings.sources import Resolved
from tests.settings.conftest import GOOD, Load

FULL = """
cluster: test
state_dir: state
gateway: {max_wait: 2m}
node_pools:
  - {name: spot, provider: cloud, max_nodes: 2, region: north, boot_timeout: 3m, idle_timeout: 0s}
  - {name: steady, provider: cloud, max_nodes: 1, region: south, market: on_demand}
models:
  - name: m
    source: file:/weights
    engine_args: {max-model-len: 1024, enforce-eager: true, dtype: float32, override: {a: [1]}}
    engine_env: {OMP_NUM_THREADS: 1}
    gpus_per_replica: 2
    pools: [steady]
    scaling: {min_replicas: 0, max_replicas: 4, scale_to_zero_after: 90s, upscale_delay: 0s}
"""


def _model(load_text: Load, text: str) -> ModelSpec:
    return to_fleet(load_text(text)).models[0]


def test_everything_that_was_written_arrives(load_text: Load) -> None:
    fleet = to_fleet(load_text(FULL))
    model = fleet.models[0]
    assert [(p.name, p.boot_timeout, p.idle_timeout) for p in fleet.pools] == [
        ("spot", 180.0, 0.0),
        ("steady", 900.0, 120.0),
    ]
    assert (model.gpus_per_replica, model.pools, model.max_wait) == (2, ("steady",), 120.0)
    assert (model.scaling.min_replicas, model.scaling.scale_to_zero_after) == (0, 90.0)
    assert model.scaling.upscale_delay == 0.0
    assert dict(model.engine.args) == {
        "dtype": "float32",
        "enforce-eager": "true",
        "max-model-len": "1024",
        "override": '{"a": [1]}',
    }
    assert dict(model.engine.env) == {"OMP_NUM_THREADS": "1"}


def test_without_pools_a_model_may_run_anywhere(load_text: Load) -> None:
    assert _model(load_text, FULL.replace("pools: [steady]", "")).pools == ("spot", "steady")


def test_a_command_engine_keeps_its_order(load_text: Load) -> None:
    command = '"file:weights", engine: {command: [serve, --port, "{port}"]}'
    engine = _model(load_text, GOOD.replace('"file:weights"', command)).engine
    assert (engine.kind, engine.argv) == ("command", ("serve", "--port", "{port}"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("file:/weights", "file:/other"),
        ("float32", "bfloat16"),
        ("gpus_per_replica: 2", "gpus_per_replica: 1"),
        ("OMP_NUM_THREADS: 1", "OMP_NUM_THREADS: 2"),
    ],
)
def test_what_changes_the_answers_changes_the_version(load_text: Load, old: str, new: str) -> None:
    before = _model(load_text, FULL).spec_hash
    assert _model(load_text, FULL.replace(old, new)).spec_hash != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_replicas: 4", "max_replicas: 5"),
        ("pools: [steady]", "pools: [spot]"),
        ("dtype: float32, override: {a: [1]}", "override: {a: [1]}, dtype: float32"),
    ],
)
def test_what_does_not_change_the_answers_keeps_it(load_text: Load, old: str, new: str) -> None:
    before = _model(load_text, FULL).spec_hash
    assert _model(load_text, FULL.replace(old, new)).spec_hash == before


HUB = """
cluster: test
node_pools:
  - {name: spot, provider: cloud, max_nodes: 0, region: north, gpu_timeout: 1m, max_loads: 1}
models:
  - name: m
    source: hf:org/name@v1
    gpus_per_replica: GPUS
    fetch_timeout: 2h
    start_attempts: 3
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHAPE = read_shape(
    {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 256,
    }
)


def _hub(load_text: Load, gpus: str = "1", at: Resolved | None = None) -> ModelSpec:
    resolved = {} if at is None else {"hf:org/name@v1": at}
    return to_fleet(load_text(HUB.replace("GPUS", gpus)), resolved).models[0]


def test_limits_of_pools_and_starts_arrive(load_text: Load) -> None:
    fleet = to_fleet(load_text(HUB.replace("GPUS", "1")))
    (pool,), (model,) = fleet.pools, fleet.models
    assert (pool.max_nodes, pool.gpu_timeout, pool.max_loads) == (0, 60.0, 1)
    assert (model.fetch_timeout, model.start_attempts) == (7200.0, 3)


def test_a_hub_source_waits_for_its_commit(load_text: Load) -> None:
    before, after = _hub(load_text), _hub(load_text, at=Resolved(COMMIT))
    assert before.weights == ""
    assert before.unresolved == "the commit of hf:org/name@v1 has not been looked up yet"
    assert (after.weights, after.unresolved) == (f"hf:org/name@{COMMIT}", "")
    assert before.spec_hash != after.spec_hash


def test_another_commit_is_another_version(load_text: Load) -> None:
    first = _hub(load_text, at=Resolved(COMMIT))
    assert _hub(load_text, at=Resolved("f" * 40)).spec_hash != first.spec_hash
    named = HUB.replace("GPUS", "1").replace("@v1", f"@{COMMIT}")
    assert _model(load_text, named).spec_hash == first.spec_hash


def test_a_commit_in_the_file_needs_no_hub(load_text: Load) -> None:
    model = _model(load_text, HUB.replace("GPUS", "1").replace("@v1", f"@{COMMIT}"))
    assert (model.weights, model.unresolved) == (f"hf:org/name@{COMMIT}", "")


def test_auto_waits_for_the_shape(load_text: Load) -> None:
    without = _hub(load_text, "auto", Resolved(COMMIT))
    assert without.gpus_per_replica == 0
    assert without.unresolved.startswith("how many GPUs hf:org/name@v1 needs is not known")
    known = _hub(load_text, "auto", Resolved(COMMIT, SHAPE))
    assert (known.unresolved, known.shape) == ("", SHAPE)


def test_what_a_hub_must_be_asked_is_named_once(load_text: Load) -> None:
    text = HUB.replace("GPUS", "1")
    again = '  - {name: n, source: "hf:org/name@v1"}\n  - {name: k, source: "file:x"}\n'
    assert [str(s) for s in hub_sources(load_text(text + again))] == ["hf:org/name@v1"]


def test_the_shape_of_a_directory_is_read_from_it(load_text: Load, tmp_path: Path) -> None:
    auto = GOOD.replace('"file:weights"', '"file:weights", gpus_per_replica: auto')
    (tmp_path / "weights").mkdir()
    unknown = _model(load_text, auto)
    assert (unknown.shape, "there is no" in unknown.unresolved) == (None, True)
    config = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 256,
    }
    (tmp_path / "weights" / "config.json").write_text(json.dumps(config))
    known = _model(load_text, auto)
    assert (known.shape, known.unresolved) == (SHAPE, "")


def test_sizes_of_options_in_bytes_reach_the_engine_as_bytes(load_text: Load) -> None:
    text = GOOD.replace('"file:weights"', '"file:w", engine_args: {kv-cache-memory-bytes: 2GiB}')
    assert _model(load_text, text).engine.args == (("kv-cache-memory-bytes", str(2 * 2**30)),)


def test_the_options_that_decide_about_memory_arrive_as_such(load_text: Load) -> None:
    text = FULL.replace("max-model-len: 1024", "max-model-len: 1024, gpu-memory-utilization: 0.8")
    memory = _model(load_text, text).memory
    assert (memory.max_model_len, memory.utilization) == (1024, 0.8)


def test_an_option_that_the_engine_would_refuse_is_told_by_its_name(load_text: Load) -> None:
    with pytest.raises(UsageError) as bad:
        load_text(FULL.replace("max-model-len: 1024", "gpu-memory-utilization: 92"))
    assert "models[0].engine_args.gpu-memory-utilization" in str(bad.value)
    assert "1 problem" in str(bad.value)
