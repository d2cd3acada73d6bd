"""The JSON schema of the configuration, for editors: `python -m elasticd.settings.schema FILE`.

It knows less than `elasticd check`: rules between keys are not in it, and neither are the keys of
providers that are not installed where it is made.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from elasticd.settings.keys import keys_of, section_in
from elasticd.settings.load import Providers, installed_providers
from elasticd.settings.model import Settings

_OURS = ("local",)
"""Providers that come with elasticd."""


def schema(providers: Providers | None = None) -> dict[str, Any]:
    """The schema, with the keys of our own providers allowed in a pool that uses them."""
    found = Settings.model_json_schema(mode="validation")
    definitions = found["$defs"]
    for section in _all_sections(Settings):
        _as_written(definitions.get(section.__name__, found), section)
    pool = definitions["NodePool"]
    known = installed_providers() if providers is None else providers
    pool["allOf"] = [_own_keys(name, known, definitions) for name in _OURS]
    # With a list of providers that is open, an unknown key cannot be told from a foreign one.
    pool["additionalProperties"] = True
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of elasticd",
        **{key: value for key, value in found.items() if key != "title"},
    }


def text() -> str:
    """As it is checked in."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _own_keys(name: str, known: Providers, definitions: dict[str, Any]) -> dict[str, Any]:
    options = known[name]().options
    own = options.model_json_schema(mode="validation")
    definitions.update(own.pop("$defs", {}))
    _as_written(own, options)
    common = dict.fromkeys(definitions["NodePool"]["properties"], True)
    return {
        "if": {"properties": {"provider": {"const": name}}, "required": ["provider"]},
        "then": {
            "properties": {**common, **own["properties"]},
            "required": [key for key, info in keys_of(options).items() if info.is_required()],
            "additionalProperties": False,
        },
    }


def _all_sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield section
    for info in keys_of(section).values():
        if child := section_in(info):
            yield from _all_sections(child)


def _as_written(schema_of: dict[str, Any], section: type[BaseModel]) -> None:
    """Defaults in the units that people write, and no titles that only repeat the key."""
    with warnings.catch_warnings():
        # A section without its required keys can be written out, and is complained about.
        warnings.simplefilter("ignore")
        written = section.model_construct().model_dump(mode="json", exclude_none=True)
    schema_of.pop("title", None)
    for key, about in schema_of["properties"].items():
        about.pop("title", None)
        about.pop("default", None)
        if key in written and written[key] not in ({}, []) and not isinstance(written[key], dict):
            about["default"] = written[key]


def main() -> int:
    """Writes the schema into the file that is named, or prints it."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
