"""A real control loop writes a real ledger, dies and lives again; all of it is replayed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elasticd.runtime.journal_files import export, export_entries, ledger_entries
from elasticd.runtime.recorder import QUIET_AGE
from elasticd.runtime.replay import replay
from elasticd.runtime.replay_report import Report
from tests.core.world import World, model
from tests.runtime.lives import PERIOD, lived, opened


def replayed(state_dir: Path) -> Report:
    path = state_dir / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return replay(ledger_entries(db))


@pytest.mark.parametrize("killed", [False, True])
def test_a_controllers_ledger_is_replayed_across_its_restart(tmp_path: Path, killed: bool) -> None:
    world = World([model(max_replicas=3)])
    with opened(tmp_path) as store:
        lived(world, store, 100.0, killed=killed)
        assert replayed(tmp_path).unequal == 0  # beside the writer
    with opened(tmp_path) as store:
        lived(world, store, 200.0)
    report = replayed(tmp_path)
    assert (report.differences, report.skipped) == ([], [])
    assert [life.epoch for life in report.lives] == [1, 2]
    assert [life.steps > 100 for life in report.lives] == [True, True]
    assert report.lives[1].until == 1_700_000_200.0
    assert sum(life.decisions for life in report.lives) > 10


def test_its_export_is_replayed_as_the_ledger_is(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        lived(World([model(max_replicas=3)]), store, 60.0)
    path = tmp_path / "journal.gz"
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        export(ledger_entries(db), 0, path)
    assert replay(export_entries(path)) == replayed(tmp_path)


def test_an_idle_controller_writes_every_quarter_of_an_hour_and_loses_no_step(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        disk = lived(World([model(min_replicas=0)]), store, 4 * QUIET_AGE, idle=True)
    report = replayed(tmp_path)
    assert report.steps > 4 * QUIET_AGE / PERIOD
    assert report.unequal == 0
    assert 3 <= disk.commits - report.lives[0].decisions <= 5


def test_steps_that_a_full_disk_did_not_take_are_a_gap_and_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.runtime.recorder.QUIET_AGE", 5.0)
    monkeypatch.setattr("elasticd.runtime.recorder._LONGEST_BACKLOG", 4)
    world = World([model(max_replicas=3)])
    with opened(tmp_path) as store:
        lived(world, store, 150.0, full=100.0)
    with opened(tmp_path) as store:
        lived(world, store, 50.0)
    report = replayed(tmp_path)
    assert (report.unequal, [life.epoch for life in report.lives]) == (0, [1, 2])
    [skipped] = report.skipped
    assert (skipped.epoch, skipped.damaged) == (1, False)
    assert "the disk took none" in skipped.why
