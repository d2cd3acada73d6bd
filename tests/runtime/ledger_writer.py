"""A process that writes steps to a ledger as fast as it can, until it is killed.

Step N writes row `counter` and row `N` with the value N, and a journal entry that says N.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalEntry, Ledger


async def main(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir)
    done = max((int(row.doc["n"]) for row in ledger.restored.rows if row.doc), default=0)
    for n in range(done + 1, done + 1_000_000):
        rows = [Row("k", "counter", {"n": n}), Row("k", f"{n:09}", {"n": n, "pad": "x" * 3000})]
        drop = [Row("k", f"{n - 20:09}", None)] if n > 20 else []
        entry = JournalEntry(float(n), ({"type": "step", "n": n},), {})
        await ledger.commit(float(n), [*rows, *drop], [entry])
        sys.stdout.write(f"{n}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
