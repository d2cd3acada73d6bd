"""A stand-in for nvidia-smi that answers from two files, in the real one's words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_PROGRAM = """#!/bin/sh
folder={folder}
test "$2" = --format=csv,noheader,nounits || exit 2
test ! -e "$folder/broken" || {{ echo "NVIDIA-SMI has failed because it couldn't communicate with \
the NVIDIA driver."; exit 9; }}
case $1 in
    --query-gpu=index,uuid) cat "$folder/gpus";;
    --query-compute-apps=pid,gpu_uuid,used_memory) cat "$folder/apps";;
    *) exit 2;;
esac
"""


class StubSmi:
    """Put on the search path by `install`."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder = folder
        folder.mkdir()
        self.uuids = tuple(f"GPU-{n:08d}-aaaa-bbbb-cccc-000000000000" for n in range(gpus))
        self._write("gpus", "".join(f"{n}, {uuid}\n" for n, uuid in enumerate(self.uuids)))
        self.computes()
        program = folder / "nvidia-smi"
        program.write_text(_PROGRAM.format(folder=folder))
        program.chmod(0o755)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f"{self.folder}{os.pathsep}{os.environ['PATH']}")

    def computes(self, *apps: tuple[int, int, str]) -> None:
        """Processes that compute from now on: pid, index of the GPU, MiB in use as written."""
        self._write("apps", "".join(f"{pid}, {self.uuids[n]}, {mib}\n" for pid, n, mib in apps))

    def breaks(self) -> None:
        (self.folder / "broken").touch()

    def _write(self, name: str, text: str) -> None:
        draft = self.folder / f".{name}"
        draft.write_text(text)
        draft.replace(self.folder / name)
