"""The settings as the core gets them."""

from __future__ import annotations

import pytest

from elasticd.core.specs import ModelSpec
from elasticd.settings.fleet import to_fleet
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
