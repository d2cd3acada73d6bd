"""A broken controller breaks nothing else: the short form of `tests.e2e.controller_down`.

`ELASTICD_CONTROLLER_DOWN_SECONDS=300` makes it the long one.
"""

from __future__ import annotations

import os

import pytest

from tests.e2e.controller_down import SHORT, run

pytestmark = pytest.mark.e2e

SECONDS = float(os.environ.get("ELASTICD_CONTROLLER_DOWN_SECONDS", SHORT))


async def test_without_a_controller_no_request_fails_and_nothing_living_is_bought_again() -> None:
    told = await run(SECONDS)
    assert told["failed"] == 0
    assert told["answered_while_down"] > 0
    assert told["machines_rented"] == 3
    assert told["replicas_same"] == 1
