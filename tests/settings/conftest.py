"""A way to write a configuration in a test and to see what `load` makes of it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from elasticd.option_types import Price
from elasticd.provider import PoolContext, Provider, ProviderPlugin
from elasticd.settings.load import BadConfiguration, Configuration, load


class CloudOptions(BaseModel):
    """A provider's own keys."""

    model_config = ConfigDict(extra="forbid", strict=True)

    region: str
    disks: int = 1


def _never(context: PoolContext, options: Any) -> Provider:
    raise AssertionError("checking a configuration must not touch a provider")


def _missing() -> ProviderPlugin:
    raise ImportError("No module named 'vendor'")


class PricedOptions(CloudOptions):
    """One that tells a price, which is paid."""

    price: Price


UNPAID = {"paid": False}
PROVIDERS = {
    "cloud": lambda: ProviderPlugin(CloudOptions, _never, UNPAID),
    "other": lambda: ProviderPlugin(CloudOptions, _never, UNPAID),
    "hearing": lambda: ProviderPlugin(CloudOptions, _never, {**UNPAID, "notices": "ec2"}),
    "paid": lambda: ProviderPlugin(PricedOptions, _never),
    "halfway": _missing,
}

GOOD = """
cluster: test
state_dir: state
node_pools:
  - {name: spot, provider: cloud, max_nodes: 2, region: north}
models:
  - {name: m, source: "file:weights"}
"""

Load = Callable[[str], Configuration]
Refused = Callable[[str], list[str]]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Writes the text into a file and loads it."""

    def load_it(text: str) -> Configuration:
        path = tmp_path / "elasticd.yaml"
        path.write_bytes(textwrap.dedent(text).encode())
        return load(path, PROVIDERS)

    return load_it


@pytest.fixture
def refused(load_text: Load) -> Refused:
    """Loads a text that must be refused; answers `LINE PATH: MESSAGE` for each problem."""

    def refuse(text: str) -> list[str]:
        with pytest.raises(BadConfiguration) as caught:
            load_text(text)
        return [f"{p.line} {p.path}: {p.message}" for p in caught.value.problems]

    return refuse
