"""The ledger: what is intended is written here before it is done.

Rows are the truth a restart begins from; the journal entry beside them, in the same transaction,
tells why. Knows nothing of what a row means. SQLite blocks, so all of it runs in one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from elasticd.core.fleet import Row
from elasticd.runtime.ledger_copier import CopyState
from elasticd.runtime.ledger_errors import LedgerRefused, LedgerUnavailable, LedgerWriteFailed
from elasticd.runtime.ledger_file import read_only
from elasticd.runtime.ledger_journal import JournalEntry, JournalLimits, read_entries
from elasticd.runtime.ledger_store import LEDGER_FILE, LedgerStore, Restored

__all__ = [
    "JournalEntry",
    "JournalLimits",
    "Ledger",
    "LedgerRefused",
    "LedgerStore",
    "LedgerUnavailable",
    "LedgerWriteFailed",
    "Restored",
    "read_journal_file",
]

T = TypeVar("T")

_log = structlog.get_logger()


class Ledger:
    """The store behind a thread of its own, so that no fsync ever holds up the loop."""

    def __init__(self, store: LedgerStore, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._thread = thread
        self.restored = store.restored

    @classmethod
    async def open(
        cls, state_dir: Path, limits: JournalLimits | None = None, core: str = ""
    ) -> Self:
        """Takes the state directory. `core`: the version of the core whose decisions are written.

        Raises `StateDirInUse`, `LedgerRefused` (for good) and `LedgerUnavailable` (for now).
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        loop = asyncio.get_running_loop()
        try:
            store = await loop.run_in_executor(
                thread, LedgerStore, state_dir, limits or JournalLimits(), core
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        for told in store.restored.told:
            _log.warning("ledger_changed", what=told)
        if remark := store.restored.clock_remark():
            _log.warning("clock_behind_ledger", seconds=store.restored.ahead, what=remark)
        return cls(store, thread)

    async def commit(self, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]) -> None:
        """Returns when it is on the disk. Raises `LedgerWriteFailed` if it is not."""
        await self._call(lambda: self._store.commit(at, rows, entries))

    async def read_journal(
        self, since_seq: int = 0, since: float = 0.0, limit: int = 1000
    ) -> list[JournalEntry]:
        """Entries after `since_seq` and not before `since` (seconds), oldest first."""
        return await self._call(lambda: self._store.read_journal(since_seq, since, limit))

    def copy_state(self) -> CopyState:
        """The previous copy that a damaged ledger could be replaced by."""
        return self._store.copier.state()

    def summary(self) -> dict[str, Any]:
        """JSON-able, for the status: the file, age (seconds, `None`: none) and problem of the copy,
        what was done to the file at this start, and how far (seconds) the host's clock was behind.
        """
        copy = self.copy_state()
        remark = self.restored.clock_remark()
        return {
            "path": str(self._store.path),
            "copy_age": copy.age,
            "copy_error": copy.error,
            "told": [*self.restored.told, *([remark] if remark else [])],
            "ahead": self.restored.ahead,
        }

    async def aclose(self) -> None:
        """Waits for a commit under way, then closes."""
        await self._call(self._store.close)
        self._thread.shutdown(wait=False)

    async def _call(self, what: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, what)


def read_journal_file(
    state_dir: Path, since_seq: int = 0, since: float = 0.0, limit: int = 1000
) -> list[JournalEntry]:
    """The journal without a controller, for commands. Raises `LedgerRefused`."""
    with read_only(state_dir / LEDGER_FILE) as db:
        return list(read_entries(db, since_seq, since, limit))
