"""What a changed file means for a daemon that runs: now, after a restart, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elasticd.settings.reload import Reload, compare
from tests.settings.conftest import GOOD, Load

NONE: Mapping[str, int] = {}
TWO = GOOD.replace(
    "node_pools:", "node_pools:\n  - {name: extra, provider: cloud, max_nodes: 1, region: south}"
)


def _compare(load_text: Load, old: str, new: str, machines: Mapping[str, int] = NONE) -> Reload:
    return compare(load_text(old), load_text(new), machines)


def _model(more: str) -> str:
    return GOOD.replace('"file:weights"', f'"file:weights", {more}')


def test_the_same_meaning_in_other_words_changes_nothing(load_text: Load) -> None:
    other = GOOD.replace("cluster: test", "cluster: test  # 测试\ngateway: {max_wait: 300s}")
    assert _compare(load_text, GOOD, other) == Reload()


@pytest.mark.parametrize(
    ("new", "path"),
    [
        (_model("scaling: {max_replicas: 3}"), "models[m].scaling.max_replicas"),
        (_model("engine_args: {dtype: float32}"), "models[m].engine_args.dtype"),
        (GOOD.replace("file:weights", "file:other"), "models[m].source"),
        (GOOD.replace("max_nodes: 2", "max_nodes: 0"), "node_pools[spot].max_nodes"),
        (GOOD.replace("region: north", "region: south"), "node_pools[spot].region"),
        (GOOD + "gateway: {max_wait: 1m}\n", "gateway.max_wait"),
        (GOOD + "on_stop: keep\n", "on_stop"),
        (GOOD + "weights: {mirror: 'http://hub'}\n", "weights.mirror"),
    ],
)
def test_what_takes_effect_now_is_named(load_text: Load, new: str, path: str) -> None:
    assert _compare(load_text, GOOD, new) == Reload(changed=(path,))


def test_keys_of_the_gateway_take_effect_now(load_text: Load) -> None:
    new = GOOD + f"gateway: {{api_keys: [{{name: a, hash: 'sha256:{'a' * 64}'}}]}}\n"
    assert _compare(load_text, GOOD, new).changed == ("gateway.api_keys[a]",)


def test_models_and_pools_come_and_go(load_text: Load) -> None:
    assert _compare(load_text, GOOD, TWO).changed[0] == "node_pools[extra]"
    assert _compare(load_text, TWO, GOOD).changed[0] == "node_pools[extra]"
    second = GOOD + '  - {name: n, source: "file:b"}\n'
    assert _compare(load_text, GOOD, second).changed == ("models[n]",)


@pytest.mark.parametrize(
    ("new", "path"),
    [
        ("gateway: {listen: 127.0.0.1:1}", "gateway.listen"),
        ("admin: {listen: 127.0.0.1:1}", "admin.listen"),
        ("admin: {socket: a.sock}", "admin.socket"),
        ("agent: {listen: 127.0.0.1:1}", "agent.listen"),
        ("ray: {port: 6390}", "ray.port"),
    ],
)
def test_what_was_bound_at_start_waits_for_a_restart(load_text: Load, new: str, path: str) -> None:
    assert _compare(load_text, GOOD, f"{GOOD}{new}\n") == Reload(needs_restart=(path,))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [("cluster: test", "cluster: other", "cluster"), ("state_dir: state", "state_dir: s", "state")],
)
def test_what_machines_and_ledger_hang_on_is_refused(
    load_text: Load, old: str, new: str, path: str
) -> None:
    (problem,) = _compare(load_text, GOOD, GOOD.replace(old, new)).refused
    assert problem.path.startswith(path)
    assert "cannot change while elasticd runs" in problem.message
    assert "run `elasticd down` first" in problem.message


def test_a_pool_that_still_has_machines_cannot_vanish(load_text: Load) -> None:
    (problem,) = _compare(load_text, TWO, GOOD, {"extra": 2, "spot": 1}).refused
    assert problem.path == "node_pools"
    assert problem.message.startswith("pool extra still has 2 machines: set max_nodes: 0 first")
    assert _compare(load_text, TWO, GOOD, {"extra": 0, "spot": 1}).refused == ()


def test_machines_keep_the_provider_that_can_end_them(load_text: Load) -> None:
    new = GOOD.replace("provider: cloud", "provider: other")
    (problem,) = _compare(load_text, GOOD, new, {"spot": 1}).refused
    assert problem.path == "node_pools[0].provider"
    assert "still has 1 machine of cloud" in problem.message
    assert _compare(load_text, GOOD, new).refused == ()
