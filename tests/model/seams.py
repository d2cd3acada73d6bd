"""What the real parts are given in place of threads, of a log, and of a new ledger's random id."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import structlog

from elasticd.runtime.ledger_content import Content
from elasticd.runtime.ledger_repair import write_new
from tests.model.books import LEDGER

T = TypeVar("T")

_BASE = "/dev/shm" if Path("/dev/shm").is_dir() else None

_FAULTS_OF_OURS: Final = (
    *("action_fault", "agent_answer_not_understood", "control_loop_failed", "provider_fault"),
    *("reload_fault", "core_not_remembered"),
)
"""What our own parts log when one of them met a fault that nobody had foreseen."""


async def _at_once(call: Callable[[], T], timeout: float, name: str) -> T:
    """A thread that is done before anybody looks."""
    return call()


@contextlib.contextmanager
def seams(hear: Callable[[str], None]) -> Iterator[None]:
    """`hear` is told of every fault of ours that is logged."""

    def listen(logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        if event.get("event") in _FAULTS_OF_OURS:
            hear(repr(dict(event)))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[listen])
    try:
        with mock.patch("elasticd.runtime.reload.in_thread", _at_once):
            yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def state_dir() -> Iterator[Path]:
    """A state directory in memory, with an empty ledger whose id is always the same."""
    directory = Path(tempfile.mkdtemp(prefix="elasticd-model-", dir=_BASE))
    try:
        shutil.copy(_template(), directory / "ledger.sqlite")
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@cache
def _template() -> Path:
    """Copied, since making one takes longer."""
    directory = Path(tempfile.mkdtemp(prefix="elasticd-model-", dir=_BASE))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    meta = {"ledger_id": LEDGER, "epoch": "0", "last_time": "0.0"}
    path = directory / "ledger.sqlite"
    write_new(path, Content(meta, ()), directory).rename(path)
    return path
