"""Makes the engines of a storm slow, so that their answers outlast what is done to them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e.stack_config import ROOT

_USUALLY, _BEYOND = 10.0, 1.25
"""Seconds that a middling answer takes; with notice it takes so many times the notice at least:
then some are finished where they are, and the others have to go on elsewhere."""


def can_be_slow(model: dict[str, Any], folder: Path) -> None:
    """Changes a model's section so that `Brakes` at `folder` work on its engines."""
    folder.mkdir()
    model["engine_args"] |= {"scheduler-cls": "tests.e2e.slow_steps.SlowScheduler"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    model["engine_env"] |= {"SLOW_STEPS": str(folder), "PYTHONPATH": path}


class Brakes:
    """On all engines that serve when a strike begins. `tokens`: those of a middling answer."""

    def __init__(self, folder: Path, replica_ids: Iterable[str], tokens: float) -> None:
        self._folder = folder
        self._tokens = tokens
        self._held = set(replica_ids)
        for replica_id in self._held:
            self._hold(replica_id, _USUALLY)

    def hold_longer(self, replica_id: str, notice: float) -> None:
        """Its answers are to take longer than the notice."""
        self._hold(replica_id, max(_USUALLY, _BEYOND * notice))

    def release(self, but: str | None = None) -> None:
        """All but that one run freely, from their next step on."""
        kept = self._held & {but}
        for replica_id in self._held - kept:
            (self._folder / replica_id).unlink()
        self._held = kept

    def _hold(self, replica_id: str, seconds: float) -> None:
        draft = self._folder / f"{replica_id}.new"
        draft.write_text(str(seconds / self._tokens), encoding="utf-8")
        draft.replace(self._folder / replica_id)
