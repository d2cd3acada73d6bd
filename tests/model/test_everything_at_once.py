"""The short form of the proof with ledger and shell, and what it must be able to see."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.model.machine import AllAtOnce

pytestmark = pytest.mark.slow

AllAtOnce.TestCase.settings = settings(
    max_examples=60,
    derandomize=True,  # `make prove` explores
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAllAtOnce = AllAtOnce.TestCase
