"""The short form of the kill matrix: each process killed once, each phase hit at least once.

`python -m tests.e2e.full_kill_matrix` is the whole of it.
"""

from __future__ import annotations

import pytest

from tests.e2e.full_kill_matrix import all_cells
from tests.e2e.kill_matrix import PHASES, PROCESSES, Cell, Result, play_all

# In an order in which each cell begins with what the one before it has left.
DIAGONAL = (
    Cell("supervisor", "node requested"),
    Cell("gateway", "replica ready"),
    Cell("engine", "replica ready"),
    Cell("engine supervisor", "replica ready"),
    Cell("controller", "node terminating"),
    Cell("head", "replica ready"),
    Cell("raylet", "replica draining"),
    Cell("actor", "replica starting"),
    Cell("machine", "node terminating"),
    Cell("agent", "node booting"),
    Cell("watcher", "node ready"),
)


def test_the_short_form_kills_every_process_and_hits_every_phase() -> None:
    assert {cell.process for cell in DIAGONAL} == set(PROCESSES)
    assert {cell.phase for cell in DIAGONAL} == set(PHASES)


def test_the_long_form_has_every_cell_once_whatever_the_seed() -> None:
    every = {Cell(process, phase) for process in PROCESSES for phase in PHASES}
    for seed in range(20):
        cells = all_cells(seed)
        assert set(cells) == every
        assert len(cells) == len(every)


@pytest.mark.e2e
async def test_whatever_is_killed_whenever_the_fleet_is_whole_again_and_requests_end() -> None:
    told: list[Result] = []
    results, left, _ = await play_all(DIAGONAL, told.append)
    assert [result.to_json() for result in results if not result.fine] == []
    assert [Cell(r.process, r.phase) for r in results] == list(DIAGONAL)
    assert left == []
