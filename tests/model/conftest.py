"""A world for one story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.close()
