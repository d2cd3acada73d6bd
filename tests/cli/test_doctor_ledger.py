"""The doctor tells of the ledger: schema, damage, the copy beside it; and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticd.cli.examine import ledger, state
from elasticd.cli.examine.finding import Finding, Level
from elasticd.cli.last_known import last_known, past_entries
from elasticd.cli.ledger_peek import peek
from elasticd.core.fleet import Row
from elasticd.runtime.ledger_content import schema_of
from elasticd.runtime.ledger_errors import LedgerRefused
from elasticd.runtime.ledger_journal import read_latest
from tests.runtime.ledger_places import NAME, entry, opened, overwrite, pages_of, write_schema1

COPY = "ledger.previous.sqlite"


def told(path: Path) -> list[tuple[Level, str, str]]:
    """What is found; nothing has changed on the way."""
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    found: list[Finding] = list(ledger.examine(path))
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before
    return [(finding.level, finding.subject, finding.text) for finding in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that was closed in order, its copy beside it."""
    store = opened(tmp_path)
    store.commit(50.0, [Row("node", "n-1", {"phase": "ready"})], [entry(50.0, "z" * 500)])
    store.close()
    opened(tmp_path).close()
    return tmp_path / NAME


def test_a_whole_ledger_is_told_with_its_schema_and_the_age_of_its_copy(path: Path) -> None:
    [(level, _, whole), (copy_level, subject, copy)] = told(path)
    assert (level, copy_level, subject) == (Level.OK, Level.OK, "ledger copy")
    assert whole.startswith("whole: schema 2, 1 rows, ")
    assert copy.startswith(f"{COPY} is whole and ")
    assert copy.endswith(" seconds old")


def test_one_of_an_earlier_release_is_told_as_such_and_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    [whole, next_start, copy] = told(path)
    assert whole[2].startswith("whole: schema 1, 8 rows, ")
    assert next_start[0] is Level.OK
    assert "the next start brings it to schema 2, with a backup" in next_start[2]
    assert copy == (Level.WARN, "ledger copy", "there is none")
    with peek(tmp_path) as db:
        assert schema_of(db) == 1
    assert len(list(past_entries(tmp_path, 0.0))) == 14
    assert {n["id"] for n in last_known(tmp_path).status["nodes"]} >= {"n-a41f6dec-1-4"}


def test_damaged_rows_fail_with_the_way_back(path: Path) -> None:
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    [(level, _, text)] = told(path)
    assert level is Level.FAIL
    assert "the row 'node n-1' does not match its checksum" in text
    assert "To start from it, run:\n" in text
    with pytest.raises(LedgerRefused, match="does not match"):
        last_known(path.parent)


def test_a_damaged_entry_is_a_warning(path: Path) -> None:
    overwrite(path, path.read_bytes().index(b"zzzz"), b"XX")
    [(level, _, text), _] = told(path)
    assert level is Level.WARN
    assert "1 parts of its journal are damaged" in text
    [damaged] = past_entries(path.parent, 0.0)
    assert "cannot be read" in damaged.plan["reasons"][0]["text"]
    with peek(path.parent) as db:
        assert read_latest(db, 1) == [damaged]


def test_ruined_pages_of_the_journal_are_a_warning_with_what_will_happen(path: Path) -> None:
    offset, size = pages_of(path, "journal")[0]
    overwrite(path, offset, b"\xee" * size)
    [(level, _, text), _] = told(path)
    assert level is Level.WARN
    assert "its rows are whole, its journal is damaged" in text


def test_a_copy_that_cannot_be_used_is_a_warning(path: Path) -> None:
    copy = path.with_name(COPY)
    copy.write_bytes(copy.read_bytes()[:5000])
    assert [(level, subject) for level, subject, _ in told(path)] == [
        (Level.OK, "ledger"),
        (Level.WARN, "ledger copy"),
    ]


def test_a_copy_that_stays_behind_is_a_warning_and_one_of_an_idle_fleet_is_none(
    path: Path,
) -> None:
    copy = path.with_name(COPY)
    os.utime(copy, (1_000.0, 1_000.0))
    assert told(path)[1][0] is Level.OK  # old, and all that there is to know
    store = opened(path.parent)
    store.copier.stop()
    store.commit(90_000.0, [Row("node", "n-2", {"phase": "ready"})], [])
    store.close()
    os.utime(copy, (1_000.0, 1_000.0))
    level, _, text = told(path)[1]
    assert level is Level.WARN
    assert text.endswith("and rows have changed since")


def test_the_state_directory_is_looked_at_with_its_ledger(path: Path) -> None:
    subjects = [finding.subject for finding in state.examine(path.parent)]
    assert subjects == ["state", "disk", "ledger", "ledger copy"]


def test_a_ledger_that_is_missing_beside_its_copy_fails(path: Path) -> None:
    path.unlink()
    found = list(state.examine(path.parent))
    [lost] = [finding for finding in found if finding.level is Level.FAIL]
    assert "the ledger is missing, its copy is there: restore it before anything else" in lost.text


def test_a_ledger_that_is_a_link_to_nowhere_fails(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/ledger.sqlite")
    [lost] = [finding for finding in state.examine(path.parent) if finding.level is Level.FAIL]
    assert "a link to /nowhere/ledger.sqlite, which is not there" in lost.text
