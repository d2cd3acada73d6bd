"""A writer that is killed at any moment leaves each step whole or not there at all."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from elasticd.runtime.ledger import Ledger

KILLS = 8


def write_until_killed(state_dir: Path, lines: int) -> int:
    """Kills the writer after it has reported so many steps; returns the last one reported."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.ledger_writer", str(state_dir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout is not None
        reported = [int(writer.stdout.readline()) for _ in range(lines)][-1]
        writer.kill()
        # What it managed to say before the signal came; the last line may be torn.
        rest = [line for line in writer.stdout.read().splitlines(keepends=True) if line[-1] == "\n"]
    return int(rest[-1]) if rest else reported


async def test_a_killed_writer_leaves_whole_steps_and_everything_it_reported(
    tmp_path: Path,
) -> None:
    choice = random.Random(7)
    epoch = 0
    for _ in range(KILLS):
        reported = write_until_killed(tmp_path, choice.randrange(3, 40))
        ledger = await Ledger.open(tmp_path)
        journal = await ledger.read_journal(limit=1_000_000)
        await ledger.aclose()
        rows = {row.id: row.doc["n"] for row in ledger.restored.rows if row.doc is not None}
        last = rows.pop("counter")
        assert ledger.restored.epoch >= epoch + 2
        epoch = ledger.restored.epoch
        assert last >= reported
        assert last - reported <= 1  # at most the step whose report was cut off
        assert ledger.restored.last_time == float(last)
        assert sorted(rows.values()) == list(range(max(1, last - 19), last + 1))
        assert [e.events[0]["n"] for e in journal] == list(range(1, last + 1))
