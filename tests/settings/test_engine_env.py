"""Secrets in an engine's environment reach the engine and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from elasticd.core.actions import StartReplica
from elasticd.core.codec import encode
from elasticd.runtime.file_wishes import FileWishes
from elasticd.runtime.orders import EnginePorts, OrderMaker
from elasticd.secret import SecretUnavailable
from elasticd.settings.configuration import Configuration
from elasticd.settings.engine_env import looks_secret
from elasticd.settings.fleet import to_fleet
from elasticd.settings.load import BadConfiguration
from elasticd.settings.reload import compare
from elasticd.settings.show import effective, show
from tests.settings.conftest import GOOD, Load

INLINE = "engine_env: {MODE: fast, HF_TOKEN: hunter2}"
ELSEWHERE = "engine_env: {MODE: fast, DATABASE: {file: password}}"


def _text(more: str) -> str:
    return GOOD.replace('"file:weights"}', f'"file:weights", {more}}}')


def _ordered(config: Configuration) -> dict[str, str]:
    """The environment that an order for the model's engine holds."""
    wishes, orders = FileWishes(config), OrderMaker(lambda *_: "key", EnginePorts())
    fleet = wishes.fleet({}, {})
    orders.learn(fleet, wishes.fetch_env, wishes.secret_env)
    action = StartReplica("r", 1, "n", "m", fleet.models[0].spec_hash, 1, "127.0.0.1")
    return dict(orders.make(action).engine_env)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "TOKEN", "KEY_2"),
        *("apikey", "MY_PASSWD", "SECRET_VALUE", "GOOGLE_CREDENTIALS", "WANDB_API_KEYS"),
    ],
)
def test_a_name_that_looks_secret_is_taken_for_one(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "MODE", "MAX_NUM_BATCHED_TOKENS", "PATH", "HF_TOKEN_PATH"),
        *("DB_PASSWORD_FILE", "KEYBOARD", "MONKEY", "VLLM_LOGGING_LEVEL"),
    ],
)
def test_other_names_are_shown(name: str) -> None:
    assert not looks_secret(name)


def test_a_secret_in_the_file_reaches_the_engine_and_is_shown_nowhere(load_text: Load) -> None:
    config = load_text(_text(INLINE))
    assert _ordered(config) == {"MODE": "fast", "HF_TOKEN": "hunter2"}
    told = [show(config), str(effective(config)), json.dumps(encode(to_fleet(config)))]
    assert not any("hunter2" in text for text in told)
    assert all("fast" in text for text in told)


def test_what_is_hidden_is_said_and_cannot_be_read_back(load_text: Load) -> None:
    shown = show(load_text(_text(INLINE)))
    assert "# models[0].engine_env.HF_TOKEN is hidden" in shown
    with pytest.raises(BadConfiguration, match="is what is shown instead of a value"):
        load_text(yaml.dump(yaml.safe_load(shown)))


def test_a_secret_elsewhere_is_shown_as_its_place_and_read_for_each_order(
    load_text: Load, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "password").chmod(0o600)
    config = load_text(_text(ELSEWHERE))
    place = str(tmp_path / "password")
    assert effective(config)["models"][0]["engine_env"]["DATABASE"] == {"file": place}
    assert place in json.dumps(encode(to_fleet(config)))
    assert _ordered(config)["DATABASE"] == "hunter2"
    before = to_fleet(config)
    (tmp_path / "password").write_text("hunter3\n")
    assert _ordered(config)["DATABASE"] == "hunter3"
    assert to_fleet(config) == before
    (tmp_path / "password").unlink()
    with pytest.raises(SecretUnavailable, match="password"):
        _ordered(config)


def test_a_secret_elsewhere_that_everybody_may_read_is_told(
    load_text: Load, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "password").chmod(0o644)
    config = load_text(_text(ELSEWHERE))
    assert [w.path for w in config.warnings] == ["models[0].engine_env.DATABASE"]


def test_another_secret_in_the_file_is_another_version_and_is_told(load_text: Load) -> None:
    old, new = load_text(_text(INLINE)), load_text(_text(INLINE.replace("hunter2", "hunter3")))
    assert to_fleet(old).models[0].spec_hash != to_fleet(new).models[0].spec_hash
    assert compare(old, new, {}).changed
