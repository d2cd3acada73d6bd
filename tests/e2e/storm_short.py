"""No client notices a lost replica: the short form of `tests.e2e.storm`."""

from __future__ import annotations

import pytest

from tests.e2e.storm import SHORT, run

pytestmark = pytest.mark.e2e


async def test_streams_whose_replica_is_killed_go_on_exactly() -> None:
    told = await run(SHORT, seed=7)
    assert told["base_differ"] == 0, "undisturbed answers differ: nothing can be measured by them"
    assert told["lost"] == []
    assert told["differ"] == []
    assert told["missing"] == []
