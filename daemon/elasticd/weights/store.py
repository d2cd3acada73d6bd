"""The weights directory of a node: what lies where, and what may be used.

    DIR/OWNER/NAME@COMMIT            complete: it got this name when everything in it was verified
    DIR/OWNER/.NAME@COMMIT.partial   being fetched, or what a fetch that was ended left behind
    DIR/OWNER/.NAME@COMMIT.lock      held (flock) by the one who fetches

The name is the mark: a rename is whole or not at all, so a half fetched directory is never used.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from elasticd.weights.choice import HubFile
from elasticd.weights.progress import size_text
from elasticd.weights.source import HubSource

PART = ".part"
_MANIFEST = ".files.json"
# Ray and the engine write logs and caches to the same disk, and stop working when it is full.
RESERVE = 256 * 1024 * 1024
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskFull(Exception):
    """The weights do not fit; the message says how much is needed and free, and where."""


class WeightsStore:
    """The place of one repository at one commit below `folder`."""

    def __init__(self, folder: Path, source: HubSource) -> None:
        owner = folder / source.repo
        name = f"{owner.name}@{source.revision}"
        self._folder = folder
        self.directory = owner.with_name(name)
        self.partial = owner.with_name(f".{name}.partial")
        self._lock_path = owner.with_name(f".{name}.lock")
        self._lock: int | None = None

    @property
    def complete(self) -> bool:
        """Whether an engine may use `directory`."""
        return self.directory.is_dir()

    def try_lock(self) -> bool:
        """Whether this process is now the one that fetches. The lock goes with the process."""
        if self._lock is None:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def begin(self, files: Sequence[HubFile]) -> None:
        """Makes room for `files`. Raises `DiskFull` if what is still missing does not fit."""
        self.partial.mkdir(parents=True, exist_ok=True)
        self._write_manifest(files)
        missing = sum(f.size for f in files) - self.bytes_there(files)
        free = shutil.disk_usage(self.partial).free
        if missing + RESERVE > free:
            raise DiskFull(self._full(missing))

    def files(self) -> tuple[HubFile, ...] | None:
        """What the fetch under way, by whomever, is to bring; `None`: not known."""
        try:
            listed = json.loads((self.partial / _MANIFEST).read_text())
            return tuple(HubFile(**entry) for entry in listed)
        except (OSError, ValueError, TypeError):
            return None

    def bytes_there(self, files: Sequence[HubFile]) -> int:
        """Bytes of `files` on the disk, of unfinished ones too."""
        if self.complete:
            return sum(f.size for f in files)
        return sum(max(_size(self.final(f)), _size(self.part(f))) for f in files)

    def final(self, file: HubFile) -> Path:
        """Where a verified file lies until the end."""
        return self.partial / file.path

    def part(self, file: HubFile) -> Path:
        """Where an unfinished one grows."""
        return self.partial / f"{file.path}{PART}"

    def finish(self) -> None:
        """Everything is there and verified: from now on it may be used."""
        (self.partial / _MANIFEST).unlink(missing_ok=True)
        _sync(self.partial)
        self.partial.rename(self.directory)
        _sync(self.directory.parent)

    def explained(self, problem: OSError) -> Exception:
        """`DiskFull` for a disk that filled up meanwhile; every other problem as it is."""
        if problem.errno not in _FULL:
            return problem
        files = self.files() or ()
        return DiskFull(self._full(sum(f.size for f in files) - self.bytes_there(files)))

    def _full(self, missing: int) -> str:
        free = shutil.disk_usage(self.partial).free
        others = self._others()
        act = f"remove what is no longer needed ({others})" if others else "use a larger disk"
        return (
            f"the disk is too small for the weights: {size_text(missing)} more needed and "
            f"{size_text(RESERVE)} kept free, {size_text(free)} free in {self._folder}: {act}, or "
            "set weights.dir to another disk"
        )

    def _others(self) -> str:
        """The largest three that lie there too, with their sizes."""
        found = [
            (sum(_size(path) for path in place.rglob("*")), place.relative_to(self._folder))
            for place in [*self._folder.glob("*@*"), *self._folder.glob("*/*@*")]
            if place.is_dir() and place != self.partial
        ]
        largest = sorted(found, key=lambda entry: (-entry[0], str(entry[1])))[:3]
        return ", ".join(f"{place} {size_text(size)}" for size, place in largest)

    def _write_manifest(self, files: Sequence[HubFile]) -> None:
        draft = self.partial / f"{_MANIFEST}.draft"
        draft.write_text(json.dumps([asdict(f) for f in files]))
        draft.replace(self.partial / _MANIFEST)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
