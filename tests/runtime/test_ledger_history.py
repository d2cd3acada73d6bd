"""Damage in the journal costs entries of the journal: never the ledger, never its rows."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime import ledger_repair
from elasticd.runtime.ledger import JournalLimits, LedgerStore, LedgerUnavailable
from elasticd.runtime.ledger_content import connect, read_content
from elasticd.runtime.ledger_file import open_ledger_file
from elasticd.runtime.ledger_journal import JournalEntry, read_entries
from tests.runtime.ledger_places import NAME, entry, opened, overwrite, pages_of, written


def test_no_byte_in_the_journals_pages_refuses_the_ledger(tmp_path: Path) -> None:
    path = written(tmp_path / "whole", rows=5, entries=150)
    with contextlib.closing(connect(str(path))) as db:
        truth = read_content(db)
    pages = [*pages_of(path, "journal"), *pages_of(path, "sqlite_sequence")]
    whole, choice = path.read_bytes(), random.Random(3)
    repaired = 0
    for _ in range(200):
        shutil.rmtree(tmp_path / "hurt", ignore_errors=True)
        (tmp_path / "hurt").mkdir()
        hurt = tmp_path / "hurt" / NAME
        hurt.write_bytes(whole)
        offset, size = choice.choice(pages)
        within = choice.choice([choice.randrange(120), choice.randrange(size)])
        overwrite(hurt, offset + within, bytes([whole[offset + within] ^ choice.randrange(1, 256)]))
        opened = open_ledger_file(hurt)
        repaired += bool(opened.told)
        assert opened.content.meta == truth.meta
        assert opened.content.rows == truth.rows
        with opened.db:
            opened.db.execute("INSERT INTO journal SELECT NULL, 1, 1, '', '', 1, '', x'', 0")
        opened.db.close()
    assert repaired > 5


def test_a_page_of_the_journal_that_stands_twice_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = written(tmp_path, rows=5, entries=400)
    pages = pages_of(path, "journal")
    (one, size), (two, _) = pages[len(pages) // 3], pages[len(pages) // 2]
    overwrite(path, two, path.read_bytes()[one : one + size])
    store = opened(tmp_path)
    [told] = store.restored.told
    assert "written anew" in told
    found = [e.seq for e in store.read_journal(0, 0.0, 1000)]
    assert found == sorted(set(found))
    assert len(store.restored.rows) == 5
    store.close()
    opened(tmp_path).close()


def _by_hand(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET size = 9223372036854775807 WHERE seq < 4",
        "UPDATE journal SET size = -9223372036854775807 WHERE seq < 4",
        "UPDATE journal SET seq = 9223372036854775807 WHERE seq = 60",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807",
        "UPDATE sqlite_sequence SET seq = 'x'",
        "UPDATE journal SET crc = NULL, plan = '{\"x\": NaN}' WHERE seq = 5",
        "UPDATE journal SET crc = NULL, events = '\" ' WHERE seq = 5",
        "UPDATE journal SET at = 9e999 WHERE seq = 5",
        "DROP TABLE journal",
        "ALTER TABLE journal DROP COLUMN quiet",
        "DELETE FROM sqlite_schema WHERE name = 'sqlite_sequence'",
    ],
)
def test_whatever_has_become_of_the_journal_the_next_life_begins_and_writes(
    tmp_path: Path, statement: str
) -> None:
    path = written(tmp_path, rows=5)
    _by_hand(path, statement)
    store = opened(tmp_path)
    assert len(store.restored.rows) == 5
    for at in range(70, 75):
        store.commit(float(at), [Row("node", "new", {"at": at})], [entry(float(at))])
    assert [e.at for e in store.read_journal(0, 70.0, 100)][-5:] == [70.0, 71.0, 72.0, 73.0, 74.0]
    store.close()
    again = opened(tmp_path)
    assert len(again.restored.rows) == 6
    assert again.restored.told == ()
    again.close()


def test_sizes_that_are_damaged_do_not_stop_the_trimming(tmp_path: Path) -> None:
    path = written(tmp_path, rows=1, entries=100)
    _by_hand(path, "UPDATE journal SET size = 9223372036854775807 WHERE seq IN (3, 99)")
    store = LedgerStore(tmp_path, JournalLimits(entries=80))
    for at in range(200, 300):
        store.commit(float(at), [], [entry(float(at))])
    assert 1 <= len(store.read_journal(0, 0.0, 1000)) <= 80
    store.close()


def test_a_wrong_number_costs_one_entry_and_not_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [1, 2, 900, 901, 3, 4, 4, 5, 6]

    def read(db: sqlite3.Connection) -> list[JournalEntry]:
        whole = [*read_entries(db)]
        return [
            JournalEntry(e.at, e.events, e.plan, n) for e, n in zip(whole, numbers, strict=True)
        ]

    path = written(tmp_path, rows=1, entries=len(numbers))
    with contextlib.closing(connect(str(path))) as db:
        content = read_content(db)
        monkeypatch.setattr(ledger_repair, "read_entries", read)
        told = ledger_repair.rebuild(db, path, content)
    assert "3 gaps" in told
    with contextlib.closing(connect(str(path))) as db:
        assert [seq for (seq,) in db.execute("SELECT seq FROM journal")] == [1, 2, 3, 4, 5, 6]


def _fails(*args: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_repair_that_cannot_be_done_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, rows=5, entries=400)
    pages = pages_of(path, "journal")
    overwrite(path, pages[len(pages) // 2][0], b"\xee" * 4096)
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(ledger_repair, "_fill", _fails)
        with pytest.raises(LedgerUnavailable):
            LedgerStore(tmp_path, JournalLimits())
    assert path.read_bytes() == before  # in WAL mode still
    assert not list(tmp_path.glob("*.new*"))
    assert not list(tmp_path.glob("ledger.damaged*"))
    opened(tmp_path).close()
