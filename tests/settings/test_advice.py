"""Warnings: choices that hold and hurt, each with its place, its line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.settings.load import load
from tests.settings.conftest import GOOD, PROVIDERS, Load

ROOT = Path(__file__).resolve().parents[2]


def _warnings(load_text: Load, text: str) -> list[str]:
    return [f"{w.line} {w.path}: {w.message}" for w in load_text(text).warnings]


def _model(more: str) -> str:
    return GOOD.replace('"file:weights"', f'"file:weights", {more}')


def _pool(more: str) -> str:
    return GOOD.replace("max_nodes: 2", more)


HEAD = "cluster: test\nray: {address: '10.0.0.5:6379'}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            _pool("max_nodes: 2, market: spot").replace("cluster: test", HEAD),
            "3 ray.address: if 10.0.0.5 is a machine of a spot pool (spot), its loss takes the ",
        ),
        (
            _pool("max_nodes: 1"),
            "4 node_pools: one machine at most and as many replicas at all times: Ray gives you "
            "nothing here, `vllm serve` alone does it",
        ),
        (
            _model("scaling: {min_replicas: 0}"),
            "7 models[0].start_timeout: with min_replicas: 0 the first request waits for a start "
            "that may take 20m, and the gateway holds it for 5m only",
        ),
        (
            _model("scaling: {max_replicas: 2, downscale_delay: 5s}"),
            "7 models[0].scaling.downscale_delay: 5s is shorter than a start-up",
        ),
        (_model("queue_limit: 0"), "7 models[0].queue_limit: no request may wait"),
        (_pool("max_nodes: 0"), "7 models[0].name: nothing is rented for m: max_nodes is 0 in"),
        (
            _pool("max_nodes: 2, accelerators: [A10H]"),
            "5 node_pools[0].accelerators[0]: 'A10H' is no usual GPU kind; if it is not a new one",
        ),
        (
            _pool("max_nodes: 1, market: spot, rebalance: replace_first"),
            "5 node_pools[0].rebalance: replace_first needs a second machine for a while, and max_",
        ),
        (
            GOOD.replace("cluster: test", "cluster: test\ngateway: {stall_after: 3m}"),
            "3 gateway.stall_after: 3m is not below idle_timeout (2m)",
        ),
        (
            GOOD.replace("cluster: test", "cluster: test\ngateway: {stall_after: 20ms}"),
            "3 gateway.stall_after: after 20ms of silence a stream may be moved",
        ),
        (
            _model("engine_args: {tool-call-parser: hermes, enable-scale-out: false}"),
            "7 models[0].engine_args.enable-scale-out: without it chats with a parser (tool-call-",
        ),
        (
            _model('engine_args: {reasoning-parser: ""}'),
            "7 models[0].engine_args.reasoning-parser: has no name; write one of vLLM's parsers",
        ),
        (
            _model('engine: {command: ["s", "{port}"]}, recovery: continue'),
            "7 models[0].recovery: continue is for engine: vllm; the streams of a command end when",
        ),
        (
            _model("engine_env: {HF_TOKEN: x}"),
            "7 models[0].engine_env.HF_TOKEN: looks like a secret",
        ),
        (GOOD + "admin: {listen: 0.0.0.0:8701}\n", "8 admin.listen: 0.0.0.0:8701: status page and"),
        (
            GOOD + "weights: {mirror: 'http://hub', token: {env: T}}\n",
            "8 weights.mirror: the token goes there in the clear; write https",
        ),
        (
            GOOD + "weights: {token: {file: nowhere}}\n",
            "8 weights.token: ",
        ),
        (
            _model("pools: [spot]").replace(
                "node_pools:",
                "node_pools:\n  - {name: b, provider: cloud, max_nodes: 1, region: n}",
            ),
            "5 node_pools[0].name: no model runs in pool b",
        ),
    ],
)
def test_a_choice_that_hurts_is_told_once_and_can_be_used(
    load_text: Load, text: str, expected: str
) -> None:
    (warning,) = _warnings(load_text, text)
    assert warning.startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        _pool("max_nodes: 1, market: spot"),  # it is rented again when it is lost
        _model("scaling: {min_replicas: 0}, start_timeout: 4m"),
        _model("scaling: {max_replicas: 2, downscale_delay: 30s}"),
        GOOD + "weights: {mirror: 'http://127.0.0.1:1', token: {env: T}}\n",
    ],
)
def test_what_is_fine_is_not_warned_of(load_text: Load, text: str) -> None:
    assert _warnings(load_text, text) == []


def test_a_secret_that_everybody_may_read_is_told(load_text: Load, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2")
    text = GOOD + "weights: {token: {file: token}}\n"
    secret.chmod(0o644)
    (warning,) = _warnings(load_text, text)
    assert f"everybody on this host may read {secret}; run: chmod 600" in warning
    secret.chmod(0o600)
    assert _warnings(load_text, text) == []


def test_commands_that_look_after_what_runs_do_not_look_for_secrets(tmp_path: Path) -> None:
    path = tmp_path / "elasticd.yaml"
    path.write_text(GOOD + "weights: {token: {file: nowhere}}\n")
    assert load(path, PROVIDERS, look_on_host=False).warnings == ()


def test_our_own_example_has_none() -> None:
    assert load(ROOT / "config" / "local.yaml").warnings == ()
