"""Starts our node programs with a stub in place of Ray."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.node.waiting import read_pid

STUB_RAY = Path(__file__).parent / "stub_ray"


def _our_own_path() -> tuple[str, ...]:
    """The sources that this test uses, where they are not the installed ones."""
    path = os.environ.get("PYTHONPATH", "")
    return (path,) if path else ()


class Program:
    """One running program and the folder its stub Ray writes into."""

    def __init__(self, folder: Path, module: str, *argv: str, **env: str) -> None:
        self.folder = folder
        self.output = folder / "output"
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join((str(STUB_RAY), *_our_own_path())),
                    "STUB_RAY_DIR": str(folder),
                    **env,
                },
            )

    def calls(self) -> list[dict[str, Any]]:
        """What `ray start` was called with, each time."""
        path = self.folder / "calls"
        return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

    @property
    def ray(self) -> int:
        return read_pid(self.folder / "ray")

    @property
    def rays_child(self) -> int:
        return read_pid(self.folder / "child")

    def said(self) -> str:
        return self.output.read_text()


@contextlib.contextmanager
def program(folder: Path, module: str, *argv: str, **env: str) -> Iterator[Program]:
    """Runs `python -m module`; ends it at the latest when the block ends."""
    running = Program(folder, module, *argv, **env)
    try:
        yield running
    finally:
        running.process.terminate()
        try:
            running.process.wait(20)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
