"""The provider of the page "write a provider", taken from the page itself."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticd.provider import PoolContext, Provider, ProviderPlugin
from tests.conformance.subjects.fake_cloud import FakeCloudSubject

PAGE = Path(__file__).parents[3] / "docs" / "write-a-provider.md"


def example() -> str:
    """The one block of the page that is a whole module."""
    page = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r'^```python\n("""acme:.*?)^```$', page, re.MULTILINE | re.DOTALL)
    return str(source)


class ExampleSubject(FakeCloudSubject):
    """The page's vendor speaks as the fake cloud does."""

    def open(self, folder: Path) -> None:
        super().open(folder)
        (folder / "acme.py").write_text(example(), encoding="utf-8")
        self._plugin = _imported(folder / "acme.py").PLUGIN
        assert isinstance(self._plugin, ProviderPlugin)

    def provider(self, *, cluster: str, ledger: str, pool: str) -> Provider:
        context = PoolContext(pool, cluster, ledger, self.state_dir(cluster, ledger, pool))
        told = {"url": self.url, "token": {"file": str(self.token_file)}}
        options = self._plugin.options.model_validate(told)
        made: Provider = self._plugin.create(context, options)
        return made

    def node_of(self, name: str, tags: Mapping[str, str]) -> str:
        return name.rpartition("/")[2]


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
