"""Which machines listen for their own end, and what a hint leads to."""

from __future__ import annotations

import pytest
import yaml

from elasticd.settings.fleet import to_fleet
from elasticd.settings.show import show
from tests.settings.conftest import GOOD, Load, Refused

HEARING = GOOD.replace("provider: cloud", "provider: hearing")


def _with(keys: str, text: str = GOOD) -> str:
    return text.replace("region: north", f"region: north, {keys}")


def _shown(load_text: Load, text: str) -> str:
    return str(yaml.safe_load(show(load_text(text)))["node_pools"][0]["notices"])


def test_the_provider_knows_by_itself_and_the_file_knows_better(load_text: Load) -> None:
    assert _shown(load_text, GOOD) == "none"
    assert _shown(load_text, HEARING) == "ec2"
    assert _shown(load_text, _with("notices: none", HEARING)) == "none"
    assert _shown(load_text, _with("notices: gcp")) == "gcp"


@pytest.mark.parametrize("policy", ["ignore", "replace_first", "drain"])
def test_what_a_hint_leads_to_reaches_the_core(load_text: Load, policy: str) -> None:
    [pool] = to_fleet(load_text(_with(f"rebalance: {policy}"))).pools
    assert pool.rebalance == policy


def test_without_a_word_a_hint_has_the_machine_replaced_first(load_text: Load) -> None:
    [pool] = to_fleet(load_text(GOOD)).pools
    assert pool.rebalance == "replace_first"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("notices: azure", "notices"),
        ("rebalance: cordon", "rebalance"),
        ("metadata_url: 'http://h'", "nobody is asked there"),
        ("notices: none, metadata_url: 'http://h'", "nobody is asked there"),
        ("notices: ec2, metadata_url: 'https://h'", "http://HOST"),
        ("notices: ec2, metadata_url: 'http://h/latest'", "http://HOST"),
    ],
)
def test_what_cannot_be_listened_to_is_one_problem(refused: Refused, keys: str, told: str) -> None:
    [problem] = refused(_with(keys))
    assert told in problem
