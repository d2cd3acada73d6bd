"""The mark: how far the ledger has come, in a small file beside it.

SQLite takes a log that is damaged or gone for one that holds nothing: it shows the ledger as it was
at the last checkpoint, without a word. So after each commit its number is written here, too. By
then the commit is on the disk, so the mark is never ahead of a whole ledger, whenever a process is
killed or the power fails, and nobody need wait for it: a mark that is behind says too little, one
that is ahead proves a loss. A copy is named as one and may be put in place, whatever the mark says.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from elasticd.runtime.ledger_content import CHECKED_SINCE, checksum, connect, schema_of
from elasticd.runtime.ledger_copy import COPIED, in_words, make_private, previous_of, way_back
from elasticd.runtime.ledger_errors import LedgerRefused, passes
from elasticd.runtime.ledger_header import log_of, mark_of, read_header

_FORMAT = "elasticd-mark-1"
_SIZE = 128
"""Bytes: within one sector of any disk, so that it is written whole or not at all."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a ledger. `commits`: how many there had been; `last_time`: of the last, seconds.

    `source`: where it stands. `copied`: of a copy.
    """

    ledger_id: str
    epoch: int
    commits: int
    last_time: float
    source: str = ""
    copied: bool = False

    @classmethod
    def of(cls, meta: Mapping[str, str], source: str = "") -> Mark:
        """Of an identity as it is written. Raises `KeyError` and `ValueError`."""
        return cls(
            meta["ledger_id"],
            int(meta["epoch"]),
            int(meta.get("commits", "0")),
            float(meta["last_time"]),
            source,
            COPIED in meta,
        )

    def proves_a_loss(self, here: Mark) -> bool:
        """Whether the ledger as it is `here` lacks something that it had, against all intent."""
        later = (self.epoch, self.commits) > (here.epoch, here.commits)
        return self.ledger_id == here.ledger_id and later and not here.copied


def read_mark(path: Path) -> Mark | None:
    """`None`: there is none, or it is damaged and proves nothing. Raises `OSError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, _SIZE, 0) if path.is_file() else b""
    finally:
        os.close(fd)
    try:
        text, _, crc = data.decode("ascii").strip().rpartition(" ")
        form, ledger_id, epoch, commits, last_time = text.split(" ")
        if form == _FORMAT and int(crc) == checksum(text):
            return Mark(ledger_id, int(epoch), int(commits), float(last_time), path.name)
    except ValueError:
        return None
    return None


class Marker:
    """Writes the mark of one ledger. What the disk refuses of it is told once and fails nothing."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = mark_of(ledger)
        self._problem = ""

    def write(self, mark: Mark, *, durably: bool = False) -> None:
        """After the commit. It is waited for the disk only where `durably` says so."""
        text = f"{_FORMAT} {mark.ledger_id} {mark.epoch} {mark.commits} {mark.last_time!r}"
        line = f"{text} {checksum(text)}".ljust(_SIZE - 1) + "\n"
        try:
            fd = self._opened()
            try:
                os.pwrite(fd, line.encode("ascii"), 0)
                if durably:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as bad:
            self._tell(bad.strerror or repr(bad))
            return
        self._problem = ""

    def _opened(self) -> int:
        # Opened anew each time: one that was removed or moved away with its ledger is made again.
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(self._path, flags)
        except FileNotFoundError:
            make_private(self._path, self._ledger)
            return os.open(self._path, flags)

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            effect = "a log that is lost would not be noticed"
            _log.warning(
                "ledger_mark_not_written", mark=str(self._path), problem=problem, effect=effect
            )
        self._problem = problem


def marks_of(ledger: Path) -> list[Mark]:
    """What is known beside a ledger of how far it had come. To be read before the ledger is: one
    that is being written only goes on from there. Raises `OSError`."""
    found = [read_mark(mark_of(ledger)), _mark_of_copy(previous_of(ledger))]
    return [mark for mark in found if mark is not None]


def _mark_of_copy(copy: Path) -> Mark | None:
    """How far the ledger had come when it was copied; `None`: the copy does not say."""
    with contextlib.suppress(OSError, sqlite3.Error, KeyError, ValueError):
        if read_header(copy) is None:
            return None
        uri = f"{copy.absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(connect(uri, uri=True)) as db:
            meta = _identity(db)
        return Mark.of(meta, copy.name)
    return None


def _identity(db: sqlite3.Connection) -> dict[str, str]:
    """The values that match their checksums."""
    if schema_of(db) < CHECKED_SINCE:
        return dict(db.execute("SELECT key, value FROM meta"))
    found = db.execute("SELECT key, value, crc FROM meta")
    return {key: value for key, value, crc in found if checksum(key, value) == crc}


def check_marks(path: Path, db: sqlite3.Connection, marks: Sequence[Mark]) -> None:
    """`check_mark` of a ledger that is open. What its identity does not say is told where it is
    read."""
    try:
        here = Mark.of(_identity(db))
    except (sqlite3.DatabaseError, KeyError, TypeError, ValueError) as bad:
        if isinstance(bad, sqlite3.Error) and passes(bad):
            raise
        return
    check_mark(path, here, marks)


def check_mark(path: Path, here: Mark, marks: Sequence[Mark]) -> None:
    """Raises `LedgerRefused` where one of `marks` proves that the ledger has lost something."""
    ahead = [mark for mark in marks if mark.proves_a_loss(here)]
    if ahead:
        furthest = max(ahead, key=lambda mark: (mark.epoch, mark.commits))
        raise LedgerRefused(
            f"{path}: {_what_is_lost(path, here, furthest)}. Machines may be running and paid for "
            "of which it does not know, so nothing is started over it. If a file was moved away, "
            f"put it back; else: {_way_on(path, here, ahead)}"
        )


def _what_is_lost(path: Path, here: Mark, furthest: Mark) -> str:
    # A ledger that has not committed yet has no time of its own.
    seconds = furthest.last_time - here.last_time if here.last_time else 0.0
    if furthest.epoch > here.epoch:
        by = f", by {in_words(seconds)}" if seconds >= 1.0 else ""
        return (
            f"an older ledger than the one that was here{by}: {furthest.source} tells of later "
            "lives of the controller"
        )
    count = furthest.commits - here.commits
    many = "commit is" if count == 1 else f"{count} commits are"
    until = f", up to {in_words(seconds)} after what it holds" if seconds >= 1.0 else ""
    log = log_of(path)
    state = "damaged or of another time" if log.exists() else "gone"
    return (
        f"the latest {many} missing{until}, as {furthest.source} tells: its log {log.name} is "
        f"{state}"
    )


def _way_on(path: Path, here: Mark, ahead: Sequence[Mark]) -> str:
    """From the copy where that knows more; else from what is left, if its numbers are not used."""
    copy = _mark_of_copy(previous_of(path))
    reached = (copy.epoch, copy.commits) if copy is not None else (-1, -1)
    older = any(mark.epoch > here.epoch for mark in ahead)
    if older or (reached >= (here.epoch, here.commits) and reached[0] >= 0):
        return way_back(path)
    remove = shlex.join(["rm", str(mark_of(path))])
    return (
        f"no copy beside it knows more than what is left. To go on from that, run:\n    {remove}\n"
        "then start elasticd again. Machines rented since are ended as orphans, with what runs on "
        "them; none is forgotten"
    )
