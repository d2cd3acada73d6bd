"""What an engine is started from, and the supervisor process that starts it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from elasticd.ray_side.engine_command import EngineCommand
from elasticd.ray_side.engine_probe import EngineAddress

# A killed process takes seconds to give a large GPU memory back; then somebody is to be told.
HELD_PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class EngineStart:
    """What is to be started, and where on this machine.

    `gpus` are its devices as Ray names them, `nvidia` whether their driver can be asked;
    `weights` the bytes it will read into memory, `None` where that is not known.
    """

    command: EngineCommand
    address: EngineAddress
    node_id: str
    folder: Path
    gpus: tuple[str, ...]
    nvidia: bool
    start_timeout: float
    weights: int | None = None


def start_supervisor(start: EngineStart, claim: int) -> subprocess.Popen[bytes]:
    """The supervisor process, which keeps `claim` open as long as it lives."""
    gpus = [word for gpu in start.gpus for word in ("--gpu", gpu)]
    options = ["--folder", str(start.folder), "--patience", str(HELD_PATIENCE), *gpus]
    if start.nvidia:
        options.append("--nvidia")
    argv = [sys.executable, "-m", "elasticd.node.engine_supervisor", start.node_id, *options]
    return subprocess.Popen(
        [*argv, "--", *start.command.argv],
        env=dict(start.command.env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A session of its own would come too late against a kill of the actor's children;
        # the supervisor leaves the tree by itself.
        pass_fds=(claim,),
    )
