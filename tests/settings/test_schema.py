"""The JSON schema for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from elasticd.settings.schema import text

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "config" / "elasticd.schema.json"


def _errors(data: Any) -> list[str]:
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(data)]


def _example() -> Any:
    return yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))


def test_the_checked_in_schema_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: make schema"


def test_our_own_example_names_it_and_agrees_with_it() -> None:
    first = (ROOT / "config" / "local.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=elasticd.schema.json"
    assert _errors(_example()) == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (None, "colour", "red"),
        ("gateway", "max_wait", 300),
        ("gateway", "max_body", "10G"),
        ("gateway", "listen", "8000"),
        ("models", "gpus_per_replica", 0.5),
        ("models", "min_replicas", 1),
        ("node_pools", "market", "sopt"),
        ("node_pools", "gpu", 1),
        ("node_pools", "price", 0.1),
    ],
)
def test_what_check_refuses_of_one_key_an_editor_marks_too(
    section: str | None, key: str, value: Any
) -> None:
    data = _example()
    holder = data if section is None else data[section]
    (holder[0] if isinstance(holder, list) else holder)[key] = value
    assert _errors(data)


def test_every_key_has_a_description() -> None:
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    pool = schema["$defs"]["NodePool"]
    own = pool["allOf"][0]["then"]["properties"]
    sections = [schema, *schema["$defs"].values()]
    for section in sections:
        assert section["description"]
        for key, about in section.get("properties", {}).items():
            assert about is True or "description" in about or "$ref" in about, key
    assert all("description" in about for about in own.values() if about is not True)
