"""Every mistake of a file is told, once, with its line and what is allowed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elasticd.errors import UsageError
from elasticd.settings.load import BadConfiguration, load
from tests.settings.conftest import GOOD, PROVIDERS, Load, Refused

TWELVE = """\
cluster: prod
cluster: production
gateway:
  listen: 127.0.0.1:80800
  max_wait: 120
  idle_timeout: -5s
  max_body: 10GX
node_pools:
  - name: spot
    provider: cloud
    market: sopt
    region: north
    max_nodes: two
  - name: steady
    provider: cloud
    region: south
models:
  - name: m
    source: file:weights
    gpus_per_replica: 0.5
    pools: [spto]
    max_replicas: 3
    scaling:
      min_replica: 1
"""
PLANTED = [
    "2 cluster: stands twice, first in line 1",
    "4 gateway.listen: no such port: '80800'; allowed: 1 to 65535",
    "5 gateway.max_wait: a duration needs a unit: write 120s or 120m, not 120",
    "6 gateway.idle_timeout: not a duration: '-5s'; allowed: ",
    "7 gateway.max_body: not a size: '10GX'; allowed: ",
    "11 node_pools[0].market: unknown value 'sopt'; did you mean spot? allowed: spot, on_demand",
    "13 node_pools[0].max_nodes: must be a whole number, in decimal digits, not 'two'",
    "14 node_pools[1].max_nodes: is missing",
    "20 models[0].gpus_per_replica: 0.5 GPUs: an engine takes whole GPUs, tensor parallel one for",
    "21 models[0].pools[0]: no pool is called 'spto'; did you mean spot? allowed: spot, steady",
    "22 models[0].max_replicas: unknown key here; it belongs under models[].scaling",
    "24 models[0].scaling.min_replica: unknown key; did you mean min_replicas? allowed here: ",
]


def test_twelve_mistakes_of_twelve_kinds_are_twelve_problems(refused: Refused) -> None:
    found = refused(TWELVE)
    assert len(found) == len(PLANTED)
    for problem, expected in zip(found, PLANTED, strict=True):
        assert problem.startswith(expected)


def test_the_message_has_one_line_each_with_the_file_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "e.yaml").write_text(TWELVE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadConfiguration) as caught:
        load(Path("some/e.yaml"), PROVIDERS)
    head, *lines = str(caught.value).splitlines()
    assert head == "some/e.yaml: 12 problems in the configuration"
    assert lines[0].startswith("  some/e.yaml:2: cluster: stands twice")
    assert len(lines) == 12


def _model(more: str) -> str:
    return GOOD.replace('"file:weights"', f'"file:weights", {more}')


def _top(more: str) -> str:
    return GOOD.replace("state_dir: state", f"state_dir: state\n{more}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A typo in a key that must be there, and what else hangs on its value.
        (GOOD.replace("name: spot", "nmae: spot"), "5 node_pools[0].nmae: unknown key; did you"),
        (GOOD.replace("provider:", "provder:"), "5 node_pools[0].provder: unknown key; did you"),
        (GOOD.replace("node_pools:", "node_pool:"), "4 node_pool: unknown key; did you mean node_"),
        (GOOD.replace("max_nodes", "maxNodes"), "5 node_pools[0].maxNodes: unknown key; did you"),
        # A key in another section: below, above, elsewhere.
        (_model("min_replicas: 0"), "7 models[0].min_replicas: unknown key here; it belongs under"),
        (_model("scaling: {queue_limit: 3}"), "7 models[0].scaling.queue_limit: unknown key here;"),
        (_top("min_replicas: 1"), "4 min_replicas: unknown key here; it belongs under models[].sc"),
        (
            _top("gateway:\nlisten: 127.0.0.1:1"),
            "5 listen: unknown key here; it belongs under gate",
        ),
        (
            _model("scaling: {source: 3}"),
            "7 models[0].scaling.source: unknown key here; it belongs",
        ),
        # One wrong value that several checks look at.
        (_model("pool: spot"), "7 models[0].pool: unknown key; did you mean pools?"),
        (_model("engine: {comand: [x]}"), "7 models[0].engine.comand: unknown key; did you mean"),
        (_model("engine: {command: serve}"), "7 models[0].engine.command: must be a list"),
        (_model("scaling: 3"), "7 models[0].scaling: must be a mapping of keys to values, not 3"),
        (
            _model("scaling: {min_replicas: 2, max_replicas: 0}"),
            "7 models[0].scaling.max_replicas:",
        ),
        (
            GOOD.replace("provider: cloud", "provider: clowd, gpu: 1"),
            "5 node_pools[0].provider: unk",
        ),
        (GOOD.replace("provider: cloud", 'provider: ""'), "5 node_pools[0].provider: unknown"),
        (
            _model("pools: [Spot]").replace("name: spot", "name: Spot"),
            "5 node_pools[0].name: 'Spot'",
        ),
        (_top("ray: {address: 'a:1', port: 017}"), "4 ray.port: '017' is no plain decimal"),
        (_top("gateway: {listen: 0.0.0.0:1, api_keys: [{name: a}]}"), "4 gateway.api_keys[0].hash"),
        # Whole sections that are something else.
        (GOOD.replace("  - {name: m", "  - 3\n  - {name: m"), "7 models[0]: must be a mapping"),
        (_top("gateway: off"), "4 gateway: must be a mapping of keys to values"),
        (GOOD.partition("models:")[0] + "models:\n", "6 models: must have at least one entry"),
    ],
)
def test_one_mistake_is_one_problem(refused: Refused, text: str, expected: str) -> None:
    (problem,) = refused(text)
    assert problem.startswith(expected)


def test_sections_with_every_key_commented_out_have_their_defaults(load_text: Load) -> None:
    assert load_text(_top("gateway:\nadmin:\nray:")).settings.gateway.listen.port == 8000


def test_a_problem_of_one_section_hides_none_of_another(refused: Refused) -> None:
    text = _top("gateway: {listen: 3, max_wait: 5m}\nadmin: {listen: 127.0.0.1:8702}")
    text = text.replace("max_nodes: 2", "max_nodes: x")
    found = refused(text.replace('"file:weights"', '"file:w", pools: [north, spot]') + "x: 1\n")
    assert [problem.split(":")[0] for problem in found] == [
        "4 gateway.listen",
        "5 admin.listen",
        "7 node_pools[0].max_nodes",
        "9 models[0].pools[0]",
        "10 x",
    ]


def test_a_name_far_from_all_known_ones_is_answered_with_all_of_them(refused: Refused) -> None:
    (problem,) = refused(_top("gateway: {zzz: 1}"))
    assert problem == (
        "4 gateway.zzz: unknown key; "
        "allowed here: listen, api_keys, max_wait, idle_timeout, stall_after, first_byte_timeout, "
        "body_timeout, max_body"
    )


@pytest.mark.parametrize(
    ("accelerators", "expected"),
    [
        ("[rtx4090]", "unknown GPU kind 'rtx4090'; did you mean 'RTX 4090'?"),
        ("[A1OG]", "unknown GPU kind 'A1OG'; did you mean 'A10G'?"),
        ("[L4]", "no pool of this model rents L4; they rent: A10G"),
    ],
)
def test_gpu_kinds_that_no_machine_can_have_are_refused(
    refused: Refused, accelerators: str, expected: str
) -> None:
    text = _model(f"accelerators: {accelerators}")
    (problem,) = refused(text.replace("max_nodes: 2", "max_nodes: 2, accelerators: [A10G]"))
    assert expected in problem


def test_a_new_gpu_kind_may_be_named_by_a_pool(load_text: Load) -> None:
    text = _model("accelerators: [Q9000]")
    config = load_text(text.replace("max_nodes: 2", "max_nodes: 2, accelerators: [Q9000]"))
    assert config.settings.models[0].accelerators == ("Q9000",)


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        ("1", "tensor-parallel-size: 2", "1 contradicts engine_args (tensor-parallel-size: 2)"),
        ("auto", "tp: 2", "auto contradicts engine_args (tensor-parallel-size: 2)"),
        ("2", "tp: 2, pp: 2", "2 contradicts engine_args (tensor-parallel-size: 2, pipeline-"),
        ("true", "", "True GPUs: allowed: auto, or a whole number from 1"),
        ("0", "", "0 GPUs: allowed: auto"),
        ('"2"', "", "2 GPUs: allowed: auto"),
    ],
)
def test_gpus_of_a_replica_are_whole_and_agree_with_the_engine(
    refused: Refused, gpus: str, options: str, expected: str
) -> None:
    (problem,) = refused(_model(f"gpus_per_replica: {gpus}, engine_args: {{{options}}}"))
    assert problem.startswith(f"7 models[0].gpus_per_replica: {expected}")


def test_options_that_elasticd_sets_itself_are_refused(refused: Refused) -> None:
    found = refused(_model("engine_args: {port: 1, api-key: x, max_model_len: 4}"))
    assert [problem.split(":")[0] for problem in found] == [
        "7 models[0].engine_args.api-key",
        "7 models[0].engine_args.max_model_len",
        "7 models[0].engine_args.port",
    ]


@pytest.mark.parametrize(
    "more",
    [
        "weights: {token: hunter2}",
        "weights: {token: {value: hunter2}}",
        "weights: {token: {file: [hunter2]}}",
        "weights: {token: [hunter2]}",
        "weights: {token: *hunter2}",
        "weights: {token: !hunter2 x}",
        "weights: {tokn: hunter2}",
        "weights: {mirror: 'http://me:hunter2@hub'}",
        "gateway: {api_keys: [{name: a, hash: hunter2}]}",
        "gateway: {api_keys: [hunter2]}",
        "gateway: {api_keys: hunter2}",
    ],
)
def test_a_secret_that_stands_in_the_file_is_refused_and_not_repeated(
    load_text: Load, more: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load_text(_top(more))
    assert "hunter2" not in str(caught.value)


def test_a_secret_that_looks_like_an_odd_number_is_not_repeated(refused: Refused) -> None:
    (problem,) = refused(_top("weights: {token: 0123456}"))
    assert "0123456" not in problem


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    pairs = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else pairs:
        yield from _places(item, (*at, key))


BASE = {
    **yaml.safe_load(GOOD),
    "gateway": {"listen": "0.0.0.0:1", "api_keys": [{"name": "a", "hash": "sha256:" + "a" * 64}]},
    "weights": {"token": {"env": "TOKEN"}, "mirror": "http://hub"},
}
ODD = st.sampled_from(
    [None, 3, -1, 0.5, True, "", "x", "auto", "5m", [], {}, [3], [None], [{}], {"a": 1}, 10**30]
)
KEYS = st.sampled_from(["nmae", "listen", "scaling", "min_replicas", "models", "x", "token", "a-b"])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_file_is_loaded_or_refused_with_one_problem_a_place(
    tmp_path: Path, data: st.DataObject
) -> None:
    tree = copy.deepcopy(BASE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.sampled_from([p for p in _places(tree) if p]))
        holder: Any = tree
        for part in place[:-1]:
            holder = holder[part]
        if isinstance(holder, dict) and data.draw(st.booleans()):
            holder[data.draw(KEYS)] = holder.pop(place[-1])
        else:
            holder[place[-1]] = copy.deepcopy(data.draw(ODD))
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(tree))
    try:
        load(path, PROVIDERS)
    except BadConfiguration as bad:
        told = [problem.place for problem in bad.problems]
        assert told
        assert len(told) == len(set(told))
