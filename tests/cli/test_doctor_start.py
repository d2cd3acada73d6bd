"""`doctor` finds whatever would keep a controller from starting: it asks what the start asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.examine import start
from elasticd.cli.examine.finding import Level
from elasticd.core.fleet import Row
from elasticd.runtime.fault_memory import FaultMemory
from elasticd.runtime.ledger import JournalLimits, LedgerStore
from elasticd.runtime.state_lock import StateLock
from elasticd.settings.load import Configuration, load


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    path = tmp_path / "elasticd.yaml"
    path.write_text(
        "cluster: test\n"
        "state_dir: state\n"
        "node_pools: [{name: here, provider: local, max_nodes: 1}]\n"
        'models: [{name: m, source: "file:weights"}]\n'
    )
    (tmp_path / "weights").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    return load(path)


def failures(config: Configuration, *, answers: bool = False) -> list[str]:
    found = list(start.examine(config, answers=answers))
    return [finding.text for finding in found if finding.level is Level.FAIL]


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def write_rows(state_dir: Path, *rows: Row) -> None:
    store = LedgerStore(state_dir, JournalLimits())
    store.commit(1.0, rows, ())
    store.close()


def test_what_is_in_order_is_one_line_and_nothing_is_made(config: Configuration) -> None:
    before = listing(config.state_dir)
    [finding] = start.examine(config, answers=False)
    assert finding.level is Level.OK
    assert listing(config.state_dir) == before


def test_a_state_directory_that_a_silent_controller_holds_is_a_failure(
    config: Configuration,
) -> None:
    with StateLock(config.state_dir):
        [text] = failures(config)
        assert f"(pid {os.getpid()})" in text
        assert failures(config, answers=True) == []  # it is the daemon itself
    assert failures(config) == []


def _damage_secret(state: Path) -> None:
    (state / "secrets").mkdir()
    (state / "secrets" / "cluster.key").write_text("short")


def _file_for_pools(state: Path) -> None:
    (state / "pools").write_text("")


def _file_for_socket(state: Path) -> None:
    (state / "run").mkdir()
    (state / "run" / "admin.sock").write_text("")


def _rename(state: Path) -> None:
    node = {"id": "n-1", "phase": "ready", "pool": "here"}
    write_rows(state, Row("cluster", "name", {"name": "old"}), Row("node", "n-1", node))


def _crash_three_times(state: Path) -> None:
    for _ in range(3):
        FaultMemory(state).note(ZeroDivisionError("a bug"), 1.0)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_damage_secret, "not a cluster key"),
        (_file_for_pools, "is no directory"),
        (_file_for_socket, "a file that is no socket is there"),
        (_rename, "cluster 'old'"),
        (_crash_three_times, "only observes: it met the same fault 3 times"),
    ],
)
def test_what_the_start_refuses_is_a_failure(
    harm: Callable[[Path], None], told: str, config: Configuration
) -> None:
    harm(config.state_dir)
    [text] = failures(config)
    assert told in text


@pytest.mark.parametrize(
    "name", ["ledger.sqlite", "ledger.sqlite-wal", "faults.json", "secrets", "pools/here"]
)
def test_what_this_user_may_not_write_is_a_failure_with_its_owner(
    name: str, config: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(config.state_dir)
    path = config.state_dir / name
    if "." in name:
        path.touch()
        path.write_text(
            path.read_text(errors="surrogateescape") or "{}"
        ) if name == "faults.json" else None
    else:
        path.mkdir(parents=True)
    allowed = os.access

    def access(asked: Any, mode: int) -> bool:
        return Path(asked) != path and allowed(asked, mode)

    monkeypatch.setattr(start.os, "access", access)
    told = failures(config)
    assert any(str(path) in text and f"user id {os.getuid()}" in text for text in told), told
