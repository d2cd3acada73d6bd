"""Whether a controller would start: what it reads, locks and writes first, asked of the same code.

Nothing is made, written or kept: where the start would make something, only its place is looked at.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.cli.ledger_peek import peek
from elasticd.errors import ElasticdError
from elasticd.ops.admin_site import AddressTaken, check_place
from elasticd.runtime.fault_memory import TIMES, Unreadable, file_of, read_faults
from elasticd.runtime.ledger_content import read_content
from elasticd.runtime.ledger_copy import previous_of
from elasticd.runtime.own_secret import open_secret
from elasticd.runtime.ownership import check_ownership

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

_SUBJECT = "start"
_AS_DAEMON = "give it to the daemon's user (chown), or run this as that user"


def examine(config: Configuration, *, answers: bool) -> Iterator[Finding]:
    """`answers`: whether the daemon of this configuration does; then it has started."""
    state_dir = config.state_dir
    if not state_dir.is_dir() or not os.access(state_dir, os.R_OK | os.W_OK | os.X_OK):
        return  # `state` tells of it, also whether one can be made
    found = [
        *([] if answers else _lock(state_dir)),
        *_files(state_dir),
        *_secret(state_dir),
        *_pools(config),
        *([] if answers else _socket(config.admin_socket)),
        *_owner(config),
        *([] if answers else _faults(state_dir)),
    ]
    if not found and not answers:
        yield ok(_SUBJECT, "no lock, file, key, pool, socket or owner is in a start's way")
    yield from found


def _lock(state_dir: Path) -> Iterator[Finding]:
    """Taken for an instant, as a reader: the lock file is neither made nor written."""
    path = state_dir / "controller.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as bad:
        yield fail(_SUBJECT, f"{path} cannot be opened ({bad.strerror})", _AS_DAEMON)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        yield fail(
            _SUBJECT,
            f"a controller (pid {holder}) holds {state_dir}, and does not answer here",
            "look whether it hangs or serves another admin.socket; stop it before another starts",
        )
    finally:
        os.close(descriptor)


def _files(state_dir: Path) -> Iterator[Finding]:
    """What the start opens for writing."""
    ledger = state_dir / "ledger.sqlite"
    beside = [ledger.with_name(f"{ledger.name}{suffix}") for suffix in ("-wal", "-shm")]
    for path in (ledger, *beside, previous_of(ledger), file_of(state_dir)):
        if path.is_file() and not os.access(path, os.R_OK | os.W_OK):
            text = f"{path} cannot be read and written by this user{_owned(path)}"
            yield fail(_SUBJECT, text, _AS_DAEMON)


def _secret(state_dir: Path) -> Iterator[Finding]:
    folder = state_dir / "secrets"
    try:
        there = (folder / "cluster.key").exists()
        if there:
            open_secret(state_dir)
    except ElasticdError as bad:
        yield fail(_SUBJECT, str(bad), f"see above; {folder} is the daemon's user's alone")
        return
    except OSError as bad:
        yield fail(_SUBJECT, f"{bad.filename} cannot be read ({bad.strerror})", _AS_DAEMON)
        return
    if not there:
        yield from _place_for(folder)


def _pools(config: Configuration) -> Iterator[Finding]:
    """Each pool's provider keeps its own records below the state directory."""
    for pool in config.settings.node_pools:
        yield from _place_for(config.state_dir / "pools" / pool.name)


def _place_for(folder: Path) -> Iterator[Finding]:
    """A directory that must be writable, or be made."""
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield fail(_SUBJECT, f"{there} is no directory", "remove it, or use another state_dir")
    elif not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        text = f"{there} cannot be read and written by this user{_owned(there)}"
        yield fail(_SUBJECT, text, _AS_DAEMON)


def _socket(path: Path) -> Iterator[Finding]:
    try:
        check_place(path)
    except AddressTaken:
        return  # somebody answers there, and `daemon` tells of them
    except (ElasticdError, OSError) as bad:
        yield fail(_SUBJECT, str(bad), "see above")


def _owner(config: Configuration) -> Iterator[Finding]:
    from elasticd.runtime.file_wishes import FileWishes

    if not (config.state_dir / "ledger.sqlite").is_file():
        return
    try:
        with peek(config.state_dir) as db:
            rows = read_content(db).rows
    except Exception:  # `ledger` tells what is wrong with it
        return
    try:
        check_ownership(config.state_dir, FileWishes(config).fleet({}, {}), rows)
    except ElasticdError as bad:
        yield fail(_SUBJECT, str(bad), "see above")


def _faults(state_dir: Path) -> Iterator[Finding]:
    path = file_of(state_dir)
    try:
        remembered = read_faults(path)
    except Unreadable as bad:
        text = f"{path} cannot be read ({bad}): faults of earlier lives are not counted"
        yield warn(_SUBJECT, text, "remove it")
        return
    if (fault := remembered.repeated) is not None and not remembered.one_more_try:
        yield fail(
            _SUBJECT,
            f"a controller that starts only observes: it met the same fault {fault.times} times "
            f"({fault.signature}: {fault.message}); {TIMES} are the limit",
            f"see its log; start it and stop it once, or remove {path}, and it tries again",
        )


def _owned(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f" (it belongs to user id {found.st_uid}, mode {found.st_mode & 0o7777:04o})"
