"""No client notices a preemption: the short form of `tests.e2e.storm`."""

from __future__ import annotations

import random

import pytest

from tests.e2e.storm import bad, run, short, summary

pytestmark = pytest.mark.e2e


async def test_replicas_are_killed_under_streams_and_no_client_notices() -> None:
    told = await run([short()], seed=random.randrange(2**32))
    assert bad(told) == [], summary(told)
