"""Ledgers and disks for the ledger's tests."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalEntry, JournalLimits, LedgerStore

FIXTURE = Path(__file__).with_name("ledger_schema1.sql")
PLAN = {"actions": [], "reasons": [], "wake_at": None}
NAME = "ledger.sqlite"


def entry(at: float, text: str = "x", quiet: bytes = b"", core: str = "") -> JournalEntry:
    """A journal entry that is easy to tell from others by `text`."""
    return JournalEntry(at, ({"type": "DownRequested", "by": text},), PLAN, quiet=quiet, core=core)


def opened(state_dir: Path, limits: JournalLimits | None = None, core: str = "") -> LedgerStore:
    """The ledger's blocking half, its first copy made."""
    store = LedgerStore(state_dir, limits or JournalLimits(), core)
    assert store.copier.wait_for_tries(1, 20.0)
    return store


def written(state_dir: Path, rows: int = 60, entries: int = 60) -> Path:
    """A ledger that was closed in order, with rows and entries of some size; no copy beside it."""
    store = opened(state_dir)
    some = [
        Row("node", f"n-{n}", {"phase": "ready", "pad": "y" * (n % 9) * 100}) for n in range(rows)
    ]
    store.commit(1.0, some, [entry(float(n), "z" * 500) for n in range(entries)])
    store.close()
    (state_dir / "ledger.previous.sqlite").unlink(missing_ok=True)
    return state_dir / NAME


def write_schema1(path: Path, mode: str = "wal") -> None:
    """The ledger of an earlier release, as its controller left it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(FIXTURE.read_text(encoding="utf-8"))
        db.execute(f"PRAGMA journal_mode = {mode}")
    path.chmod(0o600)


def pages_of(path: Path, table: str) -> list[tuple[int, int]]:
    """Where a table's pages are in the file: offset and size of each, in the order of its tree."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        size = int(db.execute("PRAGMA page_size").fetchone()[0])
        try:
            found = db.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,)).fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite does not tell which pages are whose")
    return [((number - 1) * size, size) for (number,) in found]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """What a failing disk does."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@contextlib.contextmanager
def mounted(where: Path, *options: str) -> Iterator[Callable[..., None]]:
    """A small disk of its own; yields how to mount it anew with other options. Needs root."""
    where.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "elasticd-test", where],
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("mounting a disk needs root")

    def again(*other: str) -> None:
        subprocess.run(["mount", "-o", ",".join(("remount", *other)), where], check=True)

    try:
        yield again
    finally:
        subprocess.run(["umount", "-l", where], check=True)
