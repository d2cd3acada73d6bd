"""Every scenario once for each vendor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cases import fake_vendor
from tests.cases.vendor import Vendor
from tests.runtime.virtual import LoopClock

VENDORS: Mapping[str, Callable[[Path, Callable[[], float]], Vendor]] = {"fake": fake_vendor.make}


@pytest.fixture(params=list(VENDORS))
def vendor(request: pytest.FixtureRequest, tmp_path: Path) -> Vendor:
    """A vendor by the clock of the life that rents there."""
    return VENDORS[request.param](tmp_path, LoopClock(1_700_000_000.0).now)
