"""Every long-running process takes all descriptors that the system allows."""

from __future__ import annotations

import argparse
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import processes
from elasticd.cli.run import run
from elasticd.errors import ElasticdError
from elasticd.node import watcher
from elasticd.ops import limits


@pytest.fixture
def lowered() -> Iterator[int]:
    """The soft limit is below the hard one, as it usually is."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hang_up = signal.getsignal(signal.SIGHUP)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    signal.signal(signal.SIGHUP, hang_up)


@pytest.mark.parametrize(
    "command", [run, processes.controller, processes.gateway, processes.agent, processes.head]
)
def test_each_long_running_process_raises_its_limit_before_all_else(
    lowered: int, command: Any, tmp_path: Path
) -> None:
    missing = argparse.Namespace(config=str(tmp_path / "none.yaml"), serve=False)
    with pytest.raises(ElasticdError):
        command(missing)
    assert limits.descriptors() == lowered


def test_the_watcher_of_a_machine_does_too(lowered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "main", lambda _argv: limits.descriptors())
    assert processes.node([]) == lowered


@pytest.mark.parametrize(("descriptors", "relayed"), [(1024, 480), (20_000, 9968), (64, 16)])
def test_every_client_has_a_descriptor_for_its_replica_and_some_are_left(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, relayed: int
) -> None:
    monkeypatch.setattr(limits, "descriptors", lambda: descriptors)
    assert limits.relayed_connections() == relayed


def test_the_unit_asks_for_more_than_the_usual_limit() -> None:
    unit = Path(__file__).parents[2] / "systemd" / "elasticd.service"
    lines = unit.read_text().splitlines()
    assert any(line.startswith("LimitNOFILE=") and int(line[12:]) > 100_000 for line in lines)
