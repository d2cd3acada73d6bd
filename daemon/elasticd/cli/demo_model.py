"""Has the tiny model made where a configuration wants it (`source: demo:tiny`)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from elasticd.errors import ElasticdError
from elasticd.node.process_tree import die_with_parent
from elasticd.settings.load import Configuration
from elasticd.settings.paths import demo_model_dir

_TELL_EVERY = 15.0


def ensure_demo_model(configuration: Configuration, tell: Callable[[str], None]) -> None:
    """Returns when every `demo:` source exists, whole and of this version."""
    from elasticd.demo.tiny_model import finished

    if not any(model.source == "demo:tiny" for model in configuration.settings.models):
        return
    target = demo_model_dir()
    if finished(target):
        return
    tell(f"making the tiny model in {target} (first time, about a minute)")
    started = time.monotonic()
    _make(target, tell)
    tell(f"the tiny model is made ({time.monotonic() - started:.0f} s)")


def _make(directory: Path, tell: Callable[[str], None]) -> None:
    # A process of its own: torch is large, slow to import, and not needed here afterwards.
    command = [sys.executable, "-m", "elasticd.demo.tiny_model", str(directory)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    last: deque[str] = deque(maxlen=3)
    told = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # It runs before any signal is handled here: what ends us must end it too.
        preexec_fn=die_with_parent(),
    ) as maker:
        assert maker.stdout is not None
        for line in maker.stdout:
            last.append(line.strip())
            if time.monotonic() - told >= _TELL_EVERY:
                told = time.monotonic()
                tell(f"tiny model: {last[-1]}")
    if maker.returncode != 0:
        words = "\n".join(last)
        raise ElasticdError(f"the tiny model was not made (exit {maker.returncode}):\n{words}")
