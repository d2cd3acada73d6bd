"""One transaction: everything in it reaches the disk, or nothing does."""

from __future__ import annotations

import sqlite3

from elasticd.runtime.ledger_errors import LedgerWriteFailed, passes


class Transaction:
    """`BEGIN IMMEDIATE … COMMIT`; on any error everything is taken back.

    What the disk is to blame for becomes `LedgerWriteFailed`; a damaged file stays a fault.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as failed:
            self._blame(failed)
            raise

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if exc is None:
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error as failed:
                self._roll_back()
                self._blame(failed)
                raise
            return
        self._roll_back()
        if isinstance(exc, sqlite3.Error):
            self._blame(exc)

    def _blame(self, failed: sqlite3.Error) -> None:
        if passes(failed):
            raise LedgerWriteFailed(str(failed)) from failed

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite itself rolls back after some errors
            self._db.execute("ROLLBACK")
