"""The state directory: there, writable, with room, and with a ledger that can be read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from elasticd.cli.examine import ledger
from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.cli.ledger_peek import peek, traces_of
from elasticd.errors import ElasticdError

_GIB = 1024**3
_ENOUGH = 2 * _GIB
_LEAST = 128 * 1024**2


def examine(state_dir: Path) -> Iterator[Finding]:
    """Nothing is made or written on the way."""
    subject = "state"
    there = _nearest(state_dir)
    if not os.access(there, os.W_OK | os.X_OK):
        owner = there.stat().st_uid
        yield fail(
            subject,
            f"{state_dir} cannot be written by this user ({there} belongs to user id {owner})",
            "run as the daemon's user, or give the directory to this one",
        )
    elif there != state_dir:
        yield ok(subject, f"{state_dir} is not there yet and can be made")
    elif not state_dir.is_dir():
        yield fail(subject, f"{state_dir} is not a directory", "correct state_dir")
    else:
        yield _access(state_dir)
    yield _room(there)
    path = state_dir / "ledger.sqlite"
    if os.path.lexists(path) or traces_of(path):
        yield from ledger.examine(path)


def last_recorded(state_dir: Path) -> float | None:
    """The time of the ledger's last entry; `None`: none, or it cannot be read."""
    try:
        with peek(state_dir) as db:
            found = db.execute("SELECT value FROM meta WHERE key = 'last_time'").fetchone()
            return float(found[0]) if found else None
    except (ElasticdError, ValueError):
        return None


def _nearest(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _access(state_dir: Path) -> Finding:
    mode = stat.S_IMODE(state_dir.stat().st_mode)
    if mode & 0o077:
        text = f"{state_dir} is open to others (mode {mode:04o}) and holds secrets"
        return warn("state", text, f"chmod 700 {state_dir}")
    return ok("state", f"{state_dir} can be written")


def _room(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    told = f"{usage.free / _GIB:.1f} GiB free at {folder}"
    advice = "make room: on a full disk nothing can be bought"
    if usage.free < _LEAST:
        return fail("disk", told, advice)
    if usage.free < _ENOUGH:
        return warn("disk", told, advice)
    return ok("disk", told)
