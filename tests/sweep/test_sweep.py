"""The short form of the crash sweep: the controller dies once at a boundary of every kind.

`python -m tests.sweep` kills it at every single one.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.sweep.nursery import nursery
from tests.sweep.playing import Stage, shares
from tests.sweep.points import Point, missing_kinds
from tests.sweep.report import kinds_hit

LIVES = 4
BESIDE = Point("beside another ledger", "after commit: machines listed", 1, second=6)


@pytest.mark.e2e
async def test_wherever_the_controller_dies_no_machine_is_left_or_bought_twice_or_anothers() -> (
    None
):
    async with nursery() as controllers:
        stage = Stage(controllers)
        lives = [stage.killed_at_each(share) for share in shares(LIVES)]
        *stories, beside = await asyncio.gather(*lives, stage.killed_at(BESIDE))
    assert [story.broken for story in (*stories, beside) if not story.fine] == []
    assert missing_kinds(kinds_hit(stories)) == []
    assert beside.deaths
