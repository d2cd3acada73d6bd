"""What is left of machines that are no more: the record and the boot log of the last few.

The record keeps a late repeat of a launch from bringing the machine back.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from elasticd.provider import Unavailable
from elasticd_providers.local.records import Illegible, MachineFiles

_REMEMBERED = 50


class Graves:
    """`gone/` of a pool. Blocking; used with the pool's lock held."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def of(self, instance_id: str) -> MachineFiles:
        """What is left of a machine; perhaps nothing."""
        return MachineFiles(self._root / instance_id)

    def bury(self, files: MachineFiles) -> None:
        """Clears a dead machine away; one that once ran is remembered with its boot log."""
        if files.spoke():
            grave = self._root / files.root.name
            grave.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(files.root / "machine.json", grave / "machine.json")
            if files.log.exists():
                files.log.replace(grave / files.log.name)
            graves = sorted(self._root.iterdir(), key=lambda g: g.stat().st_mtime)
            for old in graves[:-_REMEMBERED]:
                shutil.rmtree(old)
        self.discard(files)

    def discard(self, files: MachineFiles) -> None:
        """Removes the node directory, then the record that names it."""
        try:
            record = files.record()
        except Illegible:
            record = None  # dead, and nobody knows where its directory was
        if record is not None:
            _remove(Path(record.node_dir))
        _remove(files.root)


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"local: cannot remove what a dead machine left: {error}") from error
