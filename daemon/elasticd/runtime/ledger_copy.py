"""Copies of a ledger: complete, checked, in their place only when they are on the disk.

A life that begins from a copy must not mint an id again that a life after the copy has given to a
machine: so a copy's epoch is far ahead of its ledger's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elasticd.runtime.ledger_content import (
    APPLICATION_ID,
    CHECKED_SINCE,
    SCHEMA_VERSION,
    Content,
    connect,
    read_content,
    schema_of,
    write_meta,
)
from elasticd.runtime.ledger_errors import ContentDamaged
from elasticd.runtime.ledger_header import mark_of, read_header

COPIED = "copied"
"""Of the identity of a copy: whoever puts it in place means to go back, whatever tells of more."""

_STEP = 64
"""Pages that are copied at a time."""


class NotCopied(Exception):
    """There is no copy, and what was there before is as it was."""


def previous_of(ledger: Path) -> Path:
    """Where the previous copy of a ledger lies."""
    return ledger.with_name(f"{ledger.stem}.previous{ledger.suffix}")


def copy_ledger(
    origin: sqlite3.Connection, ledger: Path, target: Path, between: Callable[[], None]
) -> None:
    """Writes `target` whole, or not at all. `between` is called between the steps and may raise.

    What other connections write meanwhile is not in it. Raises `NotCopied`, `OSError` and
    `sqlite3.Error`.
    """
    draft = target.with_name(f"{target.name}.new")
    clear(draft)
    try:
        make_private(draft, ledger)
        with contextlib.closing(connect(str(draft))) as copy, _one_moment(origin):
            origin.backup(copy, pages=_STEP, progress=lambda *_: between(), sleep=0.0)
            _finish(copy)
        sync(draft)
        draft.rename(target)
        sync(target.parent)
    finally:
        clear(draft)


@contextlib.contextmanager
def _one_moment(origin: sqlite3.Connection) -> Iterator[None]:
    """The copy begins anew with every change that it sees: here it sees none."""
    origin.execute("BEGIN")
    try:
        origin.execute("SELECT count(*) FROM meta").fetchone()
        yield
    finally:
        origin.execute("ROLLBACK")


def _finish(copy: sqlite3.Connection) -> None:
    copy.execute("PRAGMA synchronous = FULL")
    copy.execute("PRAGMA journal_mode = DELETE")  # one file, complete in itself
    try:
        content = read_content(copy)
    except ContentDamaged as bad:
        raise NotCopied(f"the ledger's content does not hold any more ({bad})") from bad
    if schema_of(copy) >= CHECKED_SINCE:
        write_meta(copy, COPIED, content.meta["epoch"])
    else:
        copy.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (COPIED, content.meta["epoch"]))


def make_private(path: Path, like: Path) -> None:
    """An empty file for the owner of `like` alone."""
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        owner = like.stat() if like.exists() else None
        if owner is not None and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(fd, owner.st_uid, owner.st_gid)
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """A file's content, or a directory's names, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_copy(path: Path) -> Content:
    """What a copy holds. Raises `ContentDamaged`, `OSError` and `sqlite3.Error`."""
    header = read_header(path)
    if header is None or header.application != APPLICATION_ID or header.schema > SCHEMA_VERSION:
        raise ContentDamaged("not a ledger that this elasticd can read")
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(connect(uri, uri=True)) as db:
        return read_content(db)


def age_of(path: Path) -> float:
    """Seconds since a copy was written."""
    return max(0.0, time.time() - path.stat().st_mtime)


def way_back(ledger: Path) -> str:
    """What to do about a ledger that cannot be used: a sentence or two for people."""
    copy = previous_of(ledger)
    try:
        read_copy(copy)
        age = in_words(age_of(copy))
    except FileNotFoundError:
        found = "no copy lies beside it"
    except (ContentDamaged, OSError, sqlite3.Error) as bad:
        found = f"the copy beside it, {copy}, cannot be used either ({bad})"
    else:
        return (
            f"{copy} is a whole copy, {age} old. To start from it, run:\n"
            f"    {_command(ledger, copy)}\n"
            "then start elasticd again. Machines rented after the copy are ended as orphans, "
            "with what runs on them; none is forgotten"
        )
    return (
        f"{found}: restore the file from a backup; before you remove it, end the machines of this "
        "cluster at the provider"
    )


def _command(ledger: Path, copy: Path) -> str:
    """The log goes with its ledger: applied to another file it would ruin it. So does its mark."""
    names = [ledger.with_name(ledger.name + end) for end in ("", "-wal", "-shm")]
    names.append(mark_of(ledger))
    there = [str(path) for path in names if os.path.lexists(path)]
    aside = str(dated(ledger, "damaged", ""))
    copied = shlex.join(["cp", "-p", str(copy), str(ledger)])
    if not there:
        return copied
    moved = f"{shlex.join(['mkdir', aside])} && {shlex.join(['mv', *there, aside])}"
    return f"{moved} && {copied}"


def dated(ledger: Path, what: str, suffix: str) -> Path:
    """A place beside the ledger that says what is there and since when; nothing is there yet."""
    name = f"{ledger.stem}.{what}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path, number = ledger.with_name(f"{name}{suffix}"), 2
    while os.path.lexists(path):
        path, number = ledger.with_name(f"{name}-{number}{suffix}"), number + 1
    return path


def clear(draft: Path) -> None:
    """Removes what a life that was killed has left of a draft: its logs before itself.

    A copy of a ledger has a write-ahead log until it is finished, and whoever finds a log without
    its draft would not know whose it is.
    """
    for log in ("-journal", "-wal", "-shm", ""):
        draft.with_name(f"{draft.name}{log}").unlink(missing_ok=True)


def in_words(seconds: float) -> str:
    """An age for people, in one unit."""
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:.0f} seconds"
