"""From the file to what the controller is told, secrets read only where they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.app import controller_config, gateway_config
from elasticd.runtime.config import Listening
from elasticd.runtime.file_wishes import FileWishes
from elasticd.runtime.hub_api import Hub
from elasticd.secret import SecretUnavailable
from elasticd.settings.load import BadConfiguration, load
from elasticd.settings.sources import Resolved
from tests.settings.conftest import PROVIDERS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXT = """
cluster: test
state_dir: state
gateway:
  idle_timeout: "33s"
  api_keys: [{name: team-a, hash: "sha256:%s", max_priority: 3, max_ongoing_requests: 9}]
weights: {mirror: "http://127.0.0.1:9", token: {file: token}}
node_pools:
  - {name: spot, provider: cloud, max_nodes: 2, region: north, market: spot}
models:
  - {name: m, source: "hf:a/b@main"}
""" % ("ab" * 32)


def wishes(folder: Path, text: str = TEXT, token: str = "first") -> FileWishes:
    (folder / "token").write_text(token)
    (folder / "token").chmod(0o600)
    path = folder / "elasticd.yaml"
    path.write_text(text)
    return FileWishes(load(path, PROVIDERS, look_on_host=False), PROVIDERS)


def test_a_source_is_asked_for_and_its_commit_makes_the_weights(tmp_path: Path) -> None:
    told = wishes(tmp_path)
    assert told.sources == ("hf:a/b@main",)
    [model] = told.fleet({"hf:a/b@main": Resolved(COMMIT)}, {}).models
    assert (model.weights, model.unresolved) == (f"hf:a/b@{COMMIT}", "")


def test_why_a_source_is_not_known_is_what_the_hub_said(tmp_path: Path) -> None:
    problems = {"hf:a/b@main": "the hub refuses: accept the licence"}
    [model] = wishes(tmp_path).fleet({}, problems).models
    assert model.unresolved == "the hub refuses: accept the licence"


def test_mirror_and_token_go_to_the_fetcher_and_a_rotated_token_needs_no_reload(
    tmp_path: Path,
) -> None:
    told = wishes(tmp_path)
    assert told.hub() == Hub("http://127.0.0.1:9", "first")
    (tmp_path / "token").write_text("second")
    assert dict(told.fetch_env()) == {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "second"}


def test_a_weights_directory_of_the_operators_choice_goes_to_the_fetcher(tmp_path: Path) -> None:
    told = wishes(tmp_path, TEXT.replace("weights: {", "weights: {dir: /big/disk, "))
    assert dict(told.fetch_env())["ELASTICD_WEIGHTS_DIR"] == "/big/disk"


def test_without_its_token_the_hub_is_asked_all_the_same_and_orders_say_what_is_missing(
    tmp_path: Path,
) -> None:
    told = wishes(tmp_path)
    (tmp_path / "token").unlink()
    assert told.hub().token is None
    with pytest.raises(SecretUnavailable, match="token cannot be read"):
        told.fetch_env()


def test_a_reload_compares_the_file_with_what_it_was(tmp_path: Path) -> None:
    before = wishes(tmp_path)
    (tmp_path / "elasticd.yaml").write_text(TEXT.replace("max_nodes: 2", "max_nodes: 5"))
    after = before.reread()
    told = before.compare(after, {})
    assert told.changed == ("node_pools[spot].max_nodes",)
    assert after.pools == before.pools  # the provider stays as it is
    elsewhere = TEXT.replace("region: north", "region: south")
    (tmp_path / "elasticd.yaml").write_text(elsewhere)
    assert before.reread().pools != before.pools


LOCAL = """
cluster: test
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 1}]
models: [{name: m, source: "file:weights", gpus_per_replica: 1}]
"""


def test_a_reload_refuses_what_check_refuses_this_host_included(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    path = tmp_path / "elasticd.yaml"
    path.write_text(LOCAL)
    held = FileWishes(load(path))
    path.write_text(LOCAL.replace("file:weights", "file:elsewhere"))
    with pytest.raises(BadConfiguration) as checked:
        load(path)
    with pytest.raises(BadConfiguration, match="there is no directory") as reread:
        held.reread()
    assert str(reread.value) == str(checked.value)


def test_the_controller_and_the_gateway_are_told_what_the_file_says(tmp_path: Path) -> None:
    configuration = wishes(tmp_path).configuration
    gateway = gateway_config(configuration)
    [key] = gateway.api_keys
    assert (key.name, key.sha256_hex, key.max_priority) == ("team-a", "ab" * 32, 3)
    assert (key.max_ongoing_requests, gateway.idle_timeout) == (9, 33.0)
    controller = controller_config(configuration)
    script = controller.bootstrap("node-1", "once", 4, Listening("ec2", "http://h:1"))
    assert "node-1" in script
    assert "once" in script
    assert "ELASTICD_EXPECTED_GPUS=4\n" in script
    assert "ELASTICD_NOTICES=ec2\n" in script
    assert "ELASTICD_METADATA_URL=http://h:1\n" in script


@pytest.mark.parametrize(
    ("keys", "listening"),
    [
        ("", Listening()),
        (", notices: none", Listening()),
        (", notices: gcp", Listening("gcp")),
        (", notices: ec2, metadata_url: 'http://[::1]:80'", Listening("ec2", "http://[::1]:80")),
    ],
)
def test_machines_listen_to_whom_their_pool_names(
    tmp_path: Path, keys: str, listening: Listening
) -> None:
    [pool] = wishes(tmp_path, TEXT.replace(", market: spot", keys)).pools.values()
    assert pool.listening == listening
