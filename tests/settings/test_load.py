"""What a configuration may hold, and what is said about one that may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.errors import UsageError
from elasticd.runtime.hub_api import Hub
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.sources import SourceResolver
from elasticd.settings.fleet import hub_sources
from elasticd.settings.load import load
from tests.settings.conftest import GOOD, PROVIDERS, Load, Refused


def test_a_small_file_is_enough(load_text: Load) -> None:
    config = load_text(GOOD)
    assert config.settings.gateway.listen.port == 8000
    assert config.options["spot"].region == "north"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("state_dir: state", "state_dri: state", "3 state_dri: unknown key"),
        ("region: north", "region: north, zone: a", "5 node_pools[0].zone: unknown key"),
        (", region: north", "", "5 node_pools[0].region: is missing"),
        ("provider: cloud", "provider: clown", "5 node_pools[0].provider: unknown provider"),
        ("provider: cloud", "provider: halfway", "5 node_pools[0].provider: provider 'halfway'"),
        ("max_nodes: 2", "max_nodes: many", "5 node_pools[0].max_nodes: must be a whole number"),
        ("max_nodes: 2", 'max_nodes: "2"', "5 node_pools[0].max_nodes: must be a whole number"),
        ("max_nodes: 2", "max_nodes: true", "5 node_pools[0].max_nodes: must be a whole number"),
        ("max_nodes: 2", "max_nodes: -1", "5 node_pools[0].max_nodes: must be at least 0, not -1"),
        ("region: north", "region: north, disks: 017", "5 node_pools[0].disks: '017' is no plain"),
        ("state_dir: state", 'state_dir: ""', "3 state_dir: must be a path"),
        ("state_dir: state", "state_dir: ~nosuchuser/x", "3 state_dir: '~nosuchuser/x': no home"),
        ("file:weights", "file:~nosuchuser/x", "7 models[0].source: '~nosuchuser/x': no home"),
        (
            "cluster: test",
            "cluster: test\nadmin: {listen: localhost:8000}",
            "3 admin.listen: localhost:8000 is already the address of gateway.listen",
        ),
        (
            "cluster: test",
            "cluster: test\nray: {port: 8702}",
            "3 ray.port: 127.0.0.1:8702 is already the address of agent.listen",
        ),
        ("cluster: test", "cluster: 7", "2 cluster: must be text"),
        ("state_dir: state", "state_dir: 状态", "3 state_dir: /"),
        ("state_dir: state", "state_dir: elasticd.yaml", "3 state_dir: /"),
        ("state_dir: state", "state_dir: elasticd.yaml/x", "3 state_dir: /"),
        ("cluster: test", "cluster: test\nadmin: {socket: /}", "3 admin.socket: / is a directory"),
        (
            "cluster: test",
            "cluster: test\nadmin: {socket: run/}",
            "3 admin.socket: run/ is a directory; write the path of a socket in one",
        ),
        ("cluster: test", "cluster: test\nadmin: {socket: /tmp}", "3 admin.socket: /tmp is a dir"),
        (
            "cluster: test",
            "cluster: test\nadmin: {socket: elasticd.yaml/s}",
            "3 admin.socket: /",
        ),
        (
            "cluster: test",
            "cluster: test\nweights: {mirror: 'https://h/a b'}",
            "3 weights.mirror: not a URL: 'https://h/a b'",
        ),
        (
            "cluster: test",
            "cluster: test\nweights: {mirror: 'https://h/x#y'}",
            "3 weights.mirror: a URL here ends before any ? or #",
        ),
        (
            "cluster: test",
            "cluster: test\ngateway: {max_body: 0B}",
            "3 gateway.max_body: 0B: every request would be refused; allowed: 1KiB or more",
        ),
        (
            "cluster: test",
            "cluster: test\ngateway: {max_wait: }",
            "3 gateway.max_wait: has no value, where a duration belongs; allowed:",
        ),
        (
            '"file:weights"',
            '"file:w", engine_args: {hf-token: hf_x}',
            "7 models[0].engine_args.hf-token: would be shown and kept; use weights.token",
        ),
        (
            '"file:weights"',
            '"file:w", engine_env: {A: true}',
            "7 models[0].engine_env.A: must be text",
        ),
        (
            '"file:weights"',
            '"file:w", engine_env: {A_KEY: (hidden)}',
            "7 models[0].engine_env.A_KEY: (hidden) is what is shown instead of a value",
        ),
        ("file:weights", "weights", "7 models[0].source: unknown source 'weights'"),
        ('"file:weights"', '"file:w", pools: [spto]', "7 models[0].pools[0]: no pool is called"),
        ('"file:weights"', '"file:w", engine: sglang', "7 models[0].engine: unknown engine"),
        (
            '"file:weights"',
            '"file:w", engine: {command: [serve]}',
            "7 models[0].engine.command: the command must use {port}",
        ),
        (
            '"file:weights"',
            '"file:w", scaling: {min_replicas: 3, max_replicas: 2}',
            "7 models[0].scaling: min_replicas 3 > max_replicas 2",
        ),
        ("cluster: test", "cluster: test\non_stop: halt", "3 on_stop:"),
        ("cluster: test", "cluster: test\nray: {head: managed, address: 'a:1'}", "3 ray: give"),
        (
            "cluster: test",
            "cluster: test\ngateway: {listen: 0.0.0.0:8000}",
            "3 gateway.listen: 0.0.0.0:8000 is reachable from outside",
        ),
        (
            "cluster: test",
            "cluster: test\nadmin: {listen: 127.0.0.1:8000}",
            "3 admin.listen: 127.0.0.1:8000 is already the address of gateway.listen",
        ),
    ],
)
def test_what_is_wrong_is_told_with_line_path_and_reason(
    refused: Refused, old: str, new: str, expected: str
) -> None:
    assert old in GOOD
    (problem,) = refused(GOOD.replace(old, new))
    assert problem.startswith(expected)


@pytest.mark.parametrize("value", ["120", "1.5", "120 seconds", "''", "-5s", "[5s]", "true"])
def test_a_duration_without_a_unit_is_refused(refused: Refused, value: str) -> None:
    (problem,) = refused(GOOD.replace("max_nodes: 2", f"max_nodes: 2, idle_timeout: {value}"))
    assert problem.startswith("5 node_pools[0].idle_timeout: ")


@pytest.mark.parametrize(
    "value",
    ["22:22", "017777", "6_490", "0x10", "0b11", "+5", "1" * 19, "1:30.5", ".inf", "1.0e+999"],
)
def test_a_number_that_is_not_plain_decimal_is_refused(refused: Refused, value: str) -> None:
    (problem,) = refused(GOOD.replace("max_nodes: 2", f"max_nodes: {value}"))
    assert problem.startswith(f"5 node_pools[0].max_nodes: '{value}' is no plain decimal number")


@pytest.mark.parametrize("port", ["080", "8_080", "22:22", "70000", "0", '"80"', "inf"])
def test_a_port_is_a_plain_number(refused: Refused, port: str) -> None:
    (problem,) = refused(GOOD + f"ray: {{port: {port}}}\n")
    assert problem.startswith("8 ray.port: ")


@pytest.mark.parametrize("port", ["080", "8_080", "22:22", "70000", "0", ""])
def test_a_port_of_an_address_is_a_plain_number(refused: Refused, port: str) -> None:
    (problem,) = refused(GOOD + f'gateway: {{listen: "127.0.0.1:{port}"}}\n')
    assert problem.startswith("8 gateway.listen: ")


def test_in_quotes_it_is_the_text_as_it_stands(load_text: Load) -> None:
    text = GOOD.replace('"file:weights"', '"file:w", engine_env: {MODE: "017", DAY: 2024-01-01}')
    environment = load_text(text).settings.models[0].engine_env
    assert environment == {"MODE": "017", "DAY": "2024-01-01"}


def test_a_key_that_stands_twice_is_refused_with_both_lines(refused: Refused) -> None:
    (problem,) = refused(GOOD + "cluster: other\n")
    assert problem == "8 cluster: stands twice, first in line 2; keep one of them"


def test_all_problems_are_told_at_once_in_the_order_of_the_file(refused: Refused) -> None:
    text = GOOD.replace("cluster: test", "cluster: TEST").replace("region: north", "region: 1")
    found = refused(text.replace("{name: m,", "{name: m, sauce: x,") + "colour: red\n")
    assert [problem.split(":")[0] for problem in found] == [
        "2 cluster",
        "5 node_pools[0].region",
        "7 models[0].sauce",
        "8 colour",
    ]


def _keys(*keys: str) -> str:
    listed = ", ".join(f"{{name: k{index}, hash: '{key}'}}" for index, key in enumerate(keys))
    return f"{GOOD}gateway: {{api_keys: [{listed}]}}\n"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            [f"sha256:{'a' * 64}", f"sha256:{'b' * 64}", f"sha256:{'a' * 64}"],
            "8 gateway.api_keys[2].hash: the same key as k0's",
        ),
        ([f"sha256:{'A' * 64}"], "8 gateway.api_keys[0].hash: the hash has capital letters"),
        (["a" * 64], "8 gateway.api_keys[0].hash: the hash lacks its kind; write sha256:"),
        (["sk-something"], "8 gateway.api_keys[0].hash: must be the hash of a key"),
    ],
)
def test_a_key_that_cannot_count_is_told_with_what_is_wrong_and_not_repeated(
    refused: Refused, keys: list[str], told: str
) -> None:
    (problem,) = refused(_keys(*keys))
    assert problem.startswith(told)
    assert keys[-1] not in problem


def test_a_missing_pool_list_is_told_once(refused: Refused) -> None:
    text = (
        "cluster: t\nstate_dir: s\nnode_pools:\nmodels: [{name: m, source: 'file:w', pools: [p]}]"
    )
    assert refused(text) == ["3 node_pools: must have at least one entry"]


def test_commands_that_look_after_what_runs_do_not_ask_what_lies_there(tmp_path: Path) -> None:
    path = tmp_path / "elasticd.yaml"
    path.write_text(GOOD.replace("state_dir: state", "state_dir: elasticd.yaml"))
    load(path, PROVIDERS, look_on_host=False)


@pytest.mark.parametrize(
    "text",
    [
        *("hf:a/b", "hf:a/b@main", "hf:b@v1.0", f"hf:a/b@{'a' * 40}", "hf:a/b@feature/x"),
        *("hf:a/b@../x", "hf:a/b@x..y", "hf:../b", "hf:a/b/c", "hf:a/..", "hf:", "hf:a/b@"),
        *("hf:a/b@x y", "hf:a/b@-x", "hf:a/b@x?y", "hf:a/b@x%2F..", "hf:a/b@主", "hf:/b", "hf:a/"),
        f"hf:a/b@{'x' * 300}",
    ],
)
def test_a_hub_source_that_is_accepted_is_one_that_the_resolver_takes(
    load_text: Load, tmp_path: Path, text: str
) -> None:
    resolver = SourceResolver(SourceFile(tmp_path), Hub("http://127.0.0.1:9"), lambda: None)
    try:
        config = load_text(GOOD.replace("file:weights", text))
    except UsageError:
        with pytest.raises(ValueError, match="hf:"):
            resolver.set_sources([text])
    else:
        resolver.set_sources([str(source) for source in hub_sources(config)])


def test_names_stand_once(refused: Refused) -> None:
    second = '  - {name: m, source: "file:b"}\n'
    assert refused(GOOD + second) == [
        "8 models[1].name: 'm' stands twice, first in models[0].name; rename one"
    ]


@pytest.mark.parametrize("text", ["", "[]", "just words", "node_pools: 3", "models: [3]\n"])
def test_a_file_of_another_shape_is_refused_without_a_traceback(
    refused: Refused, text: str
) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cluster: [", "not YAML"),
        (b"cluster: \xff\xfe", "not UTF-8"),
        (b"cluster: !!python/object/apply:os.getcwd []", "not YAML"),
        (b"cluster: a\nstate_dir: b\x07", ":2: not YAML: the character U\\+0007"),
        (b"cluster: a\0", ":1: not YAML: the character U\\+0000"),
        (b'cluster: a\nstate_dir: "\\ud800"', ":2: not YAML: the character U\\+D800"),
        (b"cluster: t\na: &a [*a]", ":2: not YAML: aliases"),
        (b"a: !!binary aGk=", "tags"),
        (b"[" * 5000, "nested too deeply"),
        (b"cluster: a\n---\ncluster: b", "not YAML"),
    ],
)
def test_what_is_no_yaml_is_one_message_with_the_file(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "nowhere.yaml")


def test_paths_count_from_the_files_directory(load_text: Load, tmp_path: Path) -> None:
    config = load_text(GOOD)
    assert config.state_dir == tmp_path / "state"
    assert config.admin_socket == tmp_path / "state" / "run" / "admin.sock"
    assert config.model_source(config.settings.models[0]) == str(tmp_path / "weights")


def test_the_home_directory_is_expanded(
    load_text: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = load_text(GOOD.replace("state_dir: state", "state_dir: ~/kept"))
    assert config.state_dir == tmp_path / "home" / "kept"


def test_a_socket_path_that_linux_would_cut_is_refused(refused: Refused) -> None:
    (problem,) = refused(GOOD.replace("state_dir: state", f"state_dir: /{'x' * 120}"))
    assert "107" in problem


def test_a_file_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "elasticd.yaml"
    text = GOOD.replace("{name: spot, provider: cloud, max_nodes: 2, region: north}", "")
    path.write_bytes(text.replace("file:weights", "file:Gewichte-für-模型").encode())
    program = (
        "import sys, pathlib; from elasticd.settings.document import read_document;"
        "data = read_document(pathlib.Path(sys.argv[1])).data;"
        "sys.stdout.buffer.write(data['models'][0]['source'].encode())"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == "file:Gewichte-für-模型"


def test_of_an_unknown_provider_it_is_said_where_one_from_elsewhere_belongs(
    refused: Refused,
) -> None:
    (problem,) = refused(GOOD.replace("provider: cloud", "provider: acme"))
    assert "allowed: cloud" in problem
    assert f"({Path(sys.executable).parent}/pip install …)" in problem
