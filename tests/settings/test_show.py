"""The effective configuration: complete, canonical, and the same when it is read back."""

from __future__ import annotations

from pathlib import Path

import yaml

from elasticd.settings.fleet import to_fleet
from elasticd.settings.load import Configuration, load
from elasticd.settings.show import effective, show
from tests.settings.conftest import GOOD, PROVIDERS, Load

FULL = """
cluster: test
state_dir: state
gateway: {listen: 0.0.0.0:8000, max_wait: 90s, max_body: 1048576B, api_keys: [KEY]}
weights: {token: {file: token}, mirror: http://127.0.0.1:1/hub/, dir: weights}
node_pools:
  - {name: spot, provider: cloud, max_nodes: 2, region: north, boot_timeout: 180s}
  - {name: steady, provider: cloud, max_nodes: 1, region: south, disks: 3, market: on_demand}
models:
  - name: 通义-7b
    source: file:weights
    engine_args: {max-model-len: 1024, enforce-eager: null, kv-cache-memory-bytes: 2048MiB}
    engine_env: {OMP_NUM_THREADS: 1, MODE: "017"}
    scaling: {min_replicas: 0, max_replicas: 4}
  - {name: k, source: hf:a/b, gpus_per_replica: auto, pools: [steady]}
  - {name: c, source: demo:tiny, engine: {command: [serve, "{port}"]}}
"""
KEY = f"{{name: a, hash: 'sha256:{'a' * 64}'}}"


def _again(shown: str, tmp_path: Path) -> Configuration:
    path = tmp_path / "elsewhere" / "shown.yaml"
    path.parent.mkdir()
    path.write_text(shown, encoding="utf-8")
    return load(path, PROVIDERS)


def test_what_is_shown_reads_back_as_the_same_configuration(
    load_text: Load, tmp_path: Path
) -> None:
    first = load_text(FULL.replace("KEY", KEY))
    second = _again(show(first), tmp_path)
    assert to_fleet(second) == to_fleet(first)
    assert effective(second) == effective(first)
    assert second.options == first.options
    assert second.state_dir == first.state_dir
    assert second.settings.weights == first.settings.weights.model_copy(
        update={"dir": str(tmp_path / "weights")}
    )


def test_defaults_are_filled_in_and_units_are_canonical(load_text: Load, tmp_path: Path) -> None:
    shown = yaml.safe_load(show(load_text(FULL.replace("KEY", KEY))))
    assert shown["gateway"]["max_wait"] == "1m30s"
    assert shown["gateway"]["max_body"] == "1MiB"
    assert shown["gateway"]["idle_timeout"] == "2m"
    assert shown["admin"]["socket"] == str(tmp_path / "state" / "run" / "admin.sock")
    assert shown["ray"]["head"] == "managed"
    assert shown["weights"]["mirror"] == "http://127.0.0.1:1/hub"
    first, second, _ = shown["models"]
    assert first["source"] == f"file:{tmp_path / 'weights'}"
    assert first["pools"] == ["spot", "steady"]
    assert first["scaling"]["scale_to_zero_after"] == "30m"
    assert (second["source"], second["gpus_per_replica"]) == ("hf:a/b@main", "auto")
    assert [pool["boot_timeout"] for pool in shown["node_pools"]] == ["3m", "15m"]


def test_a_secret_is_shown_as_the_place_where_it_stands(load_text: Load, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    shown = show(load_text(GOOD + "weights: {token: {file: token}}\n"))
    assert yaml.safe_load(shown)["weights"]["token"] == {"file": str(tmp_path / "token")}
    assert "hunter2" not in shown
