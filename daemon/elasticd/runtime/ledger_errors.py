"""What may be wrong with a ledger, and whether it passes.

A full or read-only disk is a state that passes: starting again later helps. A file that is damaged,
of another program or of a newer elasticd is not: a person has to look at it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from elasticd.errors import ElasticdError

_PASSING_ERRNO = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EIO,
        errno.EBUSY,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENODEV,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
_PASSING_SQLITE = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_PRIMARY = 0xFF
"""SQLite's extended codes carry the plain one in their lowest byte."""


class LedgerRefused(ElasticdError):
    """The ledger cannot be trusted or read: nothing is started on top of it.

    The exit code is that of a wrong configuration: trying again does not help.
    """

    exit_code = 2


class LedgerUnavailable(ElasticdError):
    """The disk does not take the ledger now. Nothing was changed; trying again later helps."""

    exit_code = 1


class LedgerWriteFailed(Exception):
    """A commit did not happen (disk full, I/O error) and left nothing behind."""


class ContentDamaged(Exception):
    """Rows or identity of a ledger are not as they were written."""


def passes(bad: sqlite3.Error) -> bool:
    """Whether the disk is to blame and may get better. What SQLite gives no code for does not:
    the driver says so of text that is none."""
    code: int | None = getattr(bad, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in _PASSING_SQLITE


def errno_passes(bad: OSError) -> bool:
    """The same of what the file system itself refuses."""
    return bad.errno in _PASSING_ERRNO


def unavailable(path: Path, why: object) -> LedgerUnavailable:
    """The ledger is left as it is until the disk takes it."""
    return LedgerUnavailable(
        f"{path}: cannot be used now ({why}{_room(path.parent)}); the ledger is left as it is and "
        "tried again: make room on its disk, or see that the disk and its directory can be written"
    )


def taken_away(path: Path, what: str) -> LedgerWriteFailed:
    """The file is not where it was. A copy of it, as any file that comes from another disk is, is
    not the one that is open here, and only a start makes sure that it lacks nothing."""
    return LedgerWriteFailed(
        f"{path}: {what}; put it back; if it comes back as another file (copied, or moved from "
        "another disk), restart the controller then"
    )


def _room(folder: Path) -> str:
    """SQLite tells of a full disk as an I/O error, too: whether it is one should not be a guess."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    return f"; {disk.f_bavail * disk.f_frsize / 1e6:.1f} MB are free there"


@contextlib.contextmanager
def disk_refusals(path: Path) -> Iterator[None]:
    """What the file system refuses of `path` or beside it, as an error that people can read."""
    try:
        yield
    except OSError as bad:
        where = Path(bad.filename) if isinstance(bad.filename, str) else path
        if errno_passes(bad):
            raise unavailable(where, bad.strerror) from bad
        raise LedgerRefused(
            f"{where}: cannot be opened or made ({bad.strerror}); the daemon's user "
            f"must be able to read and write {path} and its directory"
        ) from bad
