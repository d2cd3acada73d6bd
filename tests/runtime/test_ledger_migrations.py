"""A ledger of an earlier release is brought to this one's schema; one of a later is left alone."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.decide import Core
from elasticd.runtime import ledger_migrations
from elasticd.runtime.ledger import JournalLimits, LedgerStore, LedgerUnavailable
from elasticd.runtime.ledger_content import SCHEMA_VERSION, connect, read_content
from elasticd.runtime.ledger_copy import COPIED
from elasticd.runtime.ledger_errors import LedgerRefused
from elasticd.runtime.ledger_file import open_ledger_file, read_only
from elasticd.runtime.ledger_journal import read_entries
from elasticd.runtime.ledger_migrations import Migration
from tests.runtime.ledger_places import (
    NAME,
    entry,
    mounted,
    opened,
    overwrite,
    pages_of,
    write_schema1,
)


def truth(path: Path) -> tuple[dict[str, str], dict[tuple[str, str], Any], list[Any]]:
    """Identity, rows and journal as they are in a file of any schema."""
    db = connect(str(path))
    content = read_content(db)
    found = [(e.seq, e.at, e.epoch, e.events, e.plan) for e in read_entries(db)]
    db.close()
    return dict(content.meta), {(r.kind, r.id): r.doc for r in content.rows}, found


def columns(db: sqlite3.Connection) -> dict[str, list[Any]]:
    tables = ("meta", "rows", "journal")
    return {t: db.execute(f"PRAGMA table_xinfo('{t}')").fetchall() for t in tables}


def test_everything_of_the_first_schema_is_kept_with_a_backup_beside_it(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    meta, rows, journal = truth(path)
    assert (len(rows), len(journal)) == (8, 14)
    store = opened(tmp_path)
    assert {(r.kind, r.id): r.doc for r in store.restored.rows} == rows
    assert store.restored.ledger_id == meta["ledger_id"]
    assert store.restored.epoch == int(meta["epoch"]) + 1
    assert store.restored.last_time == float(meta["last_time"])
    store.commit(2e9, [], [entry(2e9, quiet=b"packed", core="9")])
    found = store.read_journal(0, 0.0, 100)
    assert [(e.seq, e.at, e.epoch, e.events, e.plan) for e in found[:-1]] == journal
    assert {(e.quiet, e.core) for e in found[:-1]} == {(b"", "")}
    assert (found[-1].seq, found[-1].quiet, found[-1].core) == (15, b"packed", "9")
    core = Core(store.restored.ledger_id, store.restored.epoch, store.restored.rows)
    assert [n["id"] for n in core.status(2e9)["nodes"] if n["phase"] == "ready"] == [
        "n-a41f6dec-1-4"
    ]
    store.close()
    [backup] = tmp_path.glob("ledger.schema1-*.sqlite")
    assert str(backup) in store.restored.told[0]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert truth(backup) == ({**meta, COPIED: meta["epoch"]}, rows, journal)
    assert not list(tmp_path.glob("*.new"))


def test_a_migrated_ledger_is_the_same_as_a_new_one(tmp_path: Path) -> None:
    write_schema1(tmp_path / "old" / NAME)
    for name in ("old", "new"):
        opened(tmp_path / name).close()
    with read_only(tmp_path / "old" / NAME) as old, read_only(tmp_path / "new" / NAME) as new:
        assert columns(old) == columns(new)
        assert old.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        assert old.execute(indexes).fetchall() == new.execute(indexes).fetchall()


def test_the_second_start_migrates_nothing(tmp_path: Path) -> None:
    write_schema1(tmp_path / NAME)
    opened(tmp_path).close()
    again = opened(tmp_path)
    again.close()
    assert again.restored.told == ()
    assert len(list(tmp_path.glob("ledger.schema1-*.sqlite"))) == 1


class _Killing(sqlite3.Connection):
    """Ends its process by SIGKILL before the statement whose turn it is."""

    left = 0

    def execute(self, *args: Any) -> sqlite3.Cursor:
        _Killing.step()
        return super().execute(*args)

    def backup(self, *args: Any, **more: Any) -> None:
        _Killing.step()
        super().backup(*args, **more)

    @staticmethod
    def step() -> None:
        if _Killing.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _Killing.left -= 1


def migrate_and_be_killed(path: Path, step: int) -> int:
    """A process of its own opens the ledger; its exit code, or what killed it (negative)."""
    child = os.fork()
    if child == 0:
        try:
            _Killing.left = step
            plain = sqlite3.connect
            sqlite3.connect = lambda *a, **m: plain(*a, factory=_Killing, **m)  # type: ignore
            # The life after it begins in a later second: what is left has another name.
            ledger_migrations.dated = lambda ledger, what, suffix: ledger.with_name(  # type: ignore
                f"{ledger.stem}.{what}-20260101T000000Z{suffix}"
            )
            opened = open_ledger_file(path)
            opened.db.close()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_killed_at_any_step_the_next_start_goes_on_and_loses_nothing(
    tmp_path: Path, mode: str
) -> None:
    """Also of a backup that was put in the ledger's place: it has no log yet."""
    write_schema1(tmp_path / "whole" / NAME)
    before = truth(tmp_path / "whole" / NAME)
    kills, backups = 0, set()
    while True:
        state = tmp_path / str(kills)
        path = state / NAME
        write_schema1(path, mode)
        if (ended := migrate_and_be_killed(path, kills)) == 0:
            break
        assert ended == -signal.SIGKILL
        kills += 1
        store = opened(state)
        assert {(r.kind, r.id): r.doc for r in store.restored.rows} == before[1]
        found = store.read_journal(0, 0.0, 100)
        assert [(e.seq, e.at, e.epoch, e.events, e.plan) for e in found] == before[2]
        store.close()
        made = list(state.glob("ledger.schema1-*.sqlite"))
        backups.add(len(made))
        assert truth(made[0])[1:] == before[1:]
        assert not list(state.glob("*.new*"))
    assert kills > 20
    assert backups == {1}  # that of the life that was killed is used


def test_however_full_the_disk_is_the_old_ledger_stays_whole_until_it_can_be_migrated(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=300k") as again:
        path = disk / NAME
        write_schema1(path)
        before, content = path.read_bytes(), truth(path)
        (disk / "other").write_bytes(b"x" * (300 * 1024 - len(before) - 4096))
        told = []
        for size in range(300, 700, 12):
            again(f"size={size}k")
            try:
                store = LedgerStore(disk, JournalLimits())
            except LedgerUnavailable as full:  # and no other: the start is tried again
                assert path.read_bytes() == before
                assert not list(disk.glob("*.new"))
                told.append(str(full))
            else:
                break
        assert any("make room for twice its size" in text for text in told)
        assert len(told) > 5
        assert {(r.kind, r.id): r.doc for r in store.restored.rows} == content[1]
        store.close()
        assert len(list(disk.glob("ledger.schema1-*.sqlite"))) == 1


def test_a_change_that_fails_in_the_middle_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    before = truth(path)
    [real] = ledger_migrations.MIGRATIONS

    def full(db: sqlite3.Connection) -> None:
        real.apply(db)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        db.execute("CREATE TABLE more AS SELECT events || events || events AS x FROM journal")

    monkeypatch.setattr(ledger_migrations, "MIGRATIONS", (Migration(2, full),))
    for _ in range(3):
        with pytest.raises(LedgerUnavailable, match="full"):
            LedgerStore(tmp_path, JournalLimits())
    assert truth(path) == before
    assert len(list(tmp_path.glob("ledger.schema1-*.sqlite"))) == 1  # one is enough
    monkeypatch.undo()
    opened(tmp_path).close()


def test_a_first_schema_with_a_ruined_journal_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    _, rows, _ = truth(path)
    offset, size = pages_of(path, "journal_at")[0]
    overwrite(path, offset, b"\xee" * size)
    store = opened(tmp_path)
    assert {(r.kind, r.id): r.doc for r in store.restored.rows} == rows
    assert len(store.read_journal(0, 0.0, 100)) == 14
    assert "written anew" in store.restored.told[0]
    store.close()


def test_a_first_schema_whose_rows_are_no_json_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE rows SET doc = '{\"x\": ' WHERE kind = 'model'")
    db.close()
    before = path.read_bytes()
    with pytest.raises(LedgerRefused, match="damaged"):
        LedgerStore(tmp_path, JournalLimits())
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["controller.lock", NAME]


def write_future(path: Path) -> None:
    """A later elasticd has begun to migrate, in the log, and was killed."""
    opened(path.parent).close()
    child = os.fork()
    if child == 0:
        db = connect(str(path))
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        os._exit(0)
    os.waitpid(child, 0)


def test_a_ledger_of_a_later_release_is_left_alone_with_its_log(tmp_path: Path) -> None:
    write_future(tmp_path / NAME)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
    assert len(before[f"{NAME}-wal"][0]) > 0
    for _ in range(2):
        with pytest.raises(LedgerRefused, match="written by a newer elasticd") as refusal:
            LedgerStore(tmp_path, JournalLimits())
    assert refusal.value.exit_code == 2
    after = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
    del before["controller.lock"], after["controller.lock"]
    assert after == before
    with pytest.raises(LedgerRefused, match="newer"), read_only(tmp_path / NAME):
        raise AssertionError("it was opened")


def test_the_journal_of_the_first_schema_is_read_without_migrating(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_schema1(path)
    before = path.read_bytes()
    with read_only(path) as db:
        assert len(list(read_entries(db))) == 14
    assert path.read_bytes() == before
