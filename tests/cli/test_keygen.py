"""Promises of `elasticd keygen`."""

from __future__ import annotations

import json

import pytest
import yaml

from elasticd.cli import main
from elasticd.gateway import ApiKey
from elasticd.gateway.keys import Caller, KeyRing


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["keygen", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["team-a", "yes", "1"])
def test_the_line_for_the_configuration_opens_the_gateway_to_the_key(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, "--name", name).splitlines()
    key = lines[1].strip()
    (entry,) = yaml.safe_load(lines[3])
    assert entry["name"] == name
    scheme, _, digest = entry["hash"].partition(":")
    assert scheme == "sha256"
    ring = KeyRing((ApiKey(name, digest),))
    assert ring.caller(f"Bearer {key}") == Caller(name, max_priority=5)


def test_no_two_keys_are_alike_and_none_can_be_guessed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = [json.loads(printed(capsys, "--json")) for _ in range(20)]
    assert len({m["key"] for m in made}) == 20
    assert all(len(m["key"]) > 50 for m in made)


def test_the_key_does_not_stand_in_the_line_for_the_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys).splitlines()
    assert lines[1].strip() not in lines[3]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "研究 组", 'a "b": {c}', "Team"])
def test_a_name_that_is_none_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen", "--name", name]) == 2
    assert "--name" in capsys.readouterr().err
