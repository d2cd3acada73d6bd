from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.weights.hub import RunningHub, running_hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A fake hub with `lab/tiny`."""
    with running_hub(tmp_path / "hub") as running:
        yield running
