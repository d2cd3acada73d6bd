"""One tiny model for all tests that need a real one; made once, then found in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.demo import tiny_model
from elasticd.settings.paths import demo_model_dir


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The finished model, where every configuration of this user has it."""
    return tiny_model.make(demo_model_dir(), print)
