"""Damage in rows or identity is refused, never run with; damage in history alone stops nobody."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalLimits, LedgerStore, LedgerWriteFailed
from elasticd.runtime.ledger_content import connect, read_content, write_row
from elasticd.runtime.ledger_errors import LedgerRefused
from elasticd.runtime.ledger_file import open_ledger_file
from elasticd.runtime.ledger_journal import read_entries, read_latest
from tests.runtime.ledger_places import NAME, entry, opened, overwrite, pages_of, written


def test_random_bytes_anywhere_are_refused_or_harm_history_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "whole")
    db = connect(str(path))
    truth = read_content(db)
    db.close()
    whole = path.read_bytes()
    choice = random.Random(11)
    refused = repaired = 0
    for _ in range(250):
        size = choice.choice([1, 1, 4, 32, 300])
        shutil.rmtree(tmp_path / "hurt", ignore_errors=True)
        (tmp_path / "hurt").mkdir()
        hurt = tmp_path / "hurt" / NAME
        hurt.write_bytes(whole)
        overwrite(hurt, choice.randrange(len(whole) - size), choice.randbytes(size))
        try:
            opened = open_ledger_file(hurt)
        except LedgerRefused:
            refused += 1
            continue
        opened.db.close()
        repaired += bool(opened.told)
        assert opened.content.meta == truth.meta
        assert opened.content.rows == truth.rows
    assert refused > 50
    assert repaired > 5


@pytest.mark.parametrize("what", ["rows", "meta"])
def test_a_changed_value_that_sqlite_does_not_see_is_refused(tmp_path: Path, what: str) -> None:
    path = written(tmp_path)
    sought = {"rows": b'"phase":"ready"', "meta": b"last_time1.0"}[what]
    at = path.read_bytes().index(sought)
    overwrite(path, at + len(sought) - 3, b"7")
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
    db.close()
    with pytest.raises(LedgerRefused, match="does not match its checksum") as refusal:
        LedgerStore(tmp_path, JournalLimits())
    assert "\n" not in str(refusal.value)


def test_a_damaged_entry_is_told_as_such_and_the_others_are_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for at in range(1, 6):
        store.commit(float(at), [Row("node", "a", {"at": at})], [entry(float(at), f"entry-{at}")])
    store.close()
    path = tmp_path / NAME
    overwrite(path, path.read_bytes().index(b"entry-3"), b"entrX")
    again = opened(tmp_path)
    found = again.read_journal(0, 0.0, 100)
    assert again.restored.told == ()
    assert [e.seq for e in found] == [1, 2, 3, 4, 5]
    assert [e.damaged for e in found] == [False, False, True, False, False]
    assert found[2].events == ()
    assert found[2].epoch == 0  # of no life: nothing later is a difference to what came before it
    assert found[2].plan["reasons"] == [
        {"subject": "journal", "text": "entry 3 is damaged and cannot be read"}
    ]
    assert again.read_journal(2, 0.0, 1) == [found[2]]  # a page of it ends where it should
    again.commit(6.0, [], [entry(6.0)])
    assert [e.seq for e in read_latest(again._db, 2)] == [5, 6]
    again.close()


def test_a_journal_whose_pages_are_ruined_is_written_anew_and_the_file_is_kept(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, entries=400)
    db = connect(str(path))
    truth = read_content(db)
    db.close()
    pages = pages_of(path, "journal")
    offset, size = pages[len(pages) // 2]
    overwrite(path, offset, b"\xee" * size)
    ruined = path.read_bytes()
    store = opened(tmp_path)
    assert store.restored.rows == truth.rows
    assert store.restored.ledger_id == truth.meta["ledger_id"]
    [told] = store.restored.told
    [kept] = tmp_path.glob("ledger.damaged-*.sqlite")
    assert str(kept) in told
    assert kept.read_bytes()[offset : offset + size] == ruined[offset : offset + size]
    found = store.read_journal(0, 0.0, 1000)
    seqs = [e.seq for e in found]
    holes = [e for e in found if e.plan["reasons"]]
    assert seqs == sorted(set(seqs))
    assert (seqs[0], seqs[-1]) == (1, 400)  # both sides of the damage
    assert 350 < len(found) < 400
    assert "are damaged and cannot be read" in holes[0].plan["reasons"][0]["text"]
    store.commit(500.0, [], [entry(500.0)])
    assert store.read_journal(0, 0.0, 1000)[-1].seq == 401
    store.close()
    assert LedgerStore(tmp_path, JournalLimits()).restored.told == ()


def test_reading_goes_on_behind_pages_that_are_ruined_while_it_runs(tmp_path: Path) -> None:
    path = written(tmp_path, entries=400)
    pages = pages_of(path, "journal")
    offset, size = pages[len(pages) // 2]
    overwrite(path, offset, b"\xee" * size)
    db = connect(str(path))
    found = list(read_entries(db))
    assert [e.damaged for e in found].count(True) == 1
    assert (found[0].seq, found[-1].seq) == (1, 400)
    assert [e.seq for e in read_latest(db, 3)] == [398, 399, 400]
    db.close()


def test_the_refusal_names_the_copy_its_age_and_a_command_that_works(tmp_path: Path) -> None:
    state = tmp_path / "state of ours"
    store = opened(state)
    store.commit(5.0, [Row("node", "n-1", {"phase": "ready"})], [entry(5.0)])
    store.close()
    later = opened(state)
    epoch, ledger_id = later.restored.epoch, later.restored.ledger_id
    later.copier.stop()
    later.commit(9.0, [Row("node", "n-2", {"phase": "ready"})], [])
    later.close()
    path = state / NAME
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    with pytest.raises(LedgerRefused, match="seconds old") as refusal:
        LedgerStore(state, JournalLimits())
    told = str(refusal.value)
    assert refusal.value.exit_code == 2
    assert str(state / "ledger.previous.sqlite") in told
    assert "ended as orphans" in told
    (state / f"{NAME}-wal").write_bytes(b"a log that must not be applied to the copy")
    with pytest.raises(LedgerRefused) as refusal:
        LedgerStore(state, JournalLimits())
    command = str(refusal.value).split("run:\n")[1].split("\n")[0].strip()
    subprocess.run(["sh", "-c", command], check=True)
    back = opened(state)
    assert [row.id for row in back.restored.rows] == ["n-1"]
    assert back.restored.ledger_id == ledger_id
    assert back.restored.epoch > epoch
    back.close()


def test_a_refused_ledger_keeps_the_log_that_its_killed_writer_left(tmp_path: Path) -> None:
    path = written(tmp_path)
    child = os.fork()
    if child == 0:
        opened(tmp_path).commit(5.0, [Row("late", "b", {})], [entry(5.0)])
        os._exit(0)
    os.waitpid(child, 0)
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    files = [path, tmp_path / f"{NAME}-wal"]
    before = [file.read_bytes() for file in files]
    assert b"late" in before[1]
    with pytest.raises(LedgerRefused, match="does not match"):
        LedgerStore(tmp_path, JournalLimits())
    assert [file.read_bytes() for file in files] == before


def test_without_a_copy_the_refusal_says_so(tmp_path: Path) -> None:
    path = written(tmp_path)
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    with pytest.raises(LedgerRefused, match="no copy lies beside it: restore the file"):
        LedgerStore(tmp_path, JournalLimits())
    (tmp_path / "ledger.previous.sqlite").write_bytes(path.read_bytes())
    with pytest.raises(LedgerRefused, match="cannot be used either"):
        LedgerStore(tmp_path, JournalLimits())


def test_a_ledger_that_is_gone_beside_its_copy_is_not_an_empty_fleet(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / NAME).unlink()
    with pytest.raises(LedgerRefused, match=r"missing, but ledger\.sqlite-mark, .*are there"):
        LedgerStore(tmp_path, JournalLimits())


@pytest.mark.parametrize("name", [NAME, f"{NAME}-wal"])
def test_a_file_that_is_taken_away_while_it_runs_is_a_failed_write(
    tmp_path: Path, name: str
) -> None:
    store = opened(tmp_path)
    (tmp_path / name).rename(tmp_path / "away")
    with pytest.raises(LedgerWriteFailed, match="put it back"):
        store.commit(1.0, [Row("node", "a", {})], [])
    shutil.copyfile(tmp_path / "away", tmp_path / name)
    with pytest.raises(LedgerWriteFailed, match="replaced by another file"):
        store.commit(1.0, [Row("node", "a", {})], [])
    (tmp_path / "away").replace(tmp_path / name)
    store.commit(2.0, [Row("node", "a", {})], [])  # goes on by itself
    store.close()
    again = opened(tmp_path)
    assert [row.id for row in again.restored.rows] == ["a"]
    again.close()


def test_a_row_is_believed_with_its_checksum_alone(tmp_path: Path) -> None:
    path = written(tmp_path)
    db = connect(str(path))
    write_row(db, Row("node", "n-3", {"phase": "gone"}))  # with its checksum: as ours
    db.close()
    opened(tmp_path).close()
    with sqlite3.connect(path) as by_hand:
        by_hand.execute("UPDATE rows SET doc = '{}' WHERE id = 'n-3'")
    by_hand.close()
    with pytest.raises(LedgerRefused, match="'node n-3' does not match"):
        LedgerStore(tmp_path, JournalLimits())
