"""Runs the fetcher as nodes do, and reads what it tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from elasticd.weights.progress import Fetched, FetchFailed, Told, from_line
from tests.weights.hub import RunningHub

LIMIT = 60.0


def start(hub: RunningHub, directory: Path, weights: str = "", **env: str) -> subprocess.Popen[str]:
    """A fetcher of `weights` (default: the hub's) into `directory`."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "elasticd.weights.fetch"),
            *("--weights", weights or hub.weights, "--dir", str(directory)),
        ],
        env={**environment(hub, directory), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def environment(hub: RunningHub, directory: Path) -> dict[str, str]:
    """Nothing of this user's own hub settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    home = directory.parent / "hf-home"
    return {**ours, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home)}


def end(process: subprocess.Popen[str]) -> tuple[int, list[Told], str]:
    """Waits for its end: exit code, what it told, and everything it printed."""
    output, _ = process.communicate(timeout=LIMIT)
    told = [word for line in output.splitlines() if (word := from_line(line)) is not None]
    return process.returncode, told, output


def fetch(hub: RunningHub, directory: Path, weights: str = "", **env: str) -> Path:
    """A fetch that succeeds; where the weights lie."""
    code, told, output = end(start(hub, directory, weights, **env))
    assert code == 0, output
    last = [word for word in told if isinstance(word, Fetched)][-1]
    return Path(last.directory)


def refused(hub: RunningHub, directory: Path, weights: str = "", **env: str) -> str:
    """A fetch that fails for good; the sentence it says."""
    code, told, output = end(start(hub, directory, weights, **env))
    assert code == 1, output
    last = told[-1]
    assert isinstance(last, FetchFailed), output
    return last.sentence
