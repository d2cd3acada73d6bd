"""The ledger keeps what it was given, refuses what it cannot read, and admits one controller."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from elasticd.core.fleet import Row
from elasticd.runtime import ledger_store
from elasticd.runtime.ledger import (
    JournalEntry,
    JournalLimits,
    Ledger,
    LedgerUnavailable,
    LedgerWriteFailed,
    read_journal_file,
)
from elasticd.runtime.ledger_content import SCHEMA_VERSION
from elasticd.runtime.ledger_errors import LedgerRefused
from elasticd.runtime.state_lock import StateDirInUse

PLAN = {"actions": [], "reasons": [], "wake_at": None}


def entry(at: float, text: str = "x") -> JournalEntry:
    return JournalEntry(at, ({"type": "DownRequested", "by": text},), PLAN)


async def test_rows_survive_and_each_opening_is_a_new_epoch(tmp_path: Path) -> None:
    first = await Ledger.open(tmp_path)
    await first.commit(
        50.0, [Row("node", "a", {"名": "机"}), Row("node", "b", {"x": 1})], [entry(50.0)]
    )
    await first.commit(60.5, [Row("node", "b", None)], [])
    await first.aclose()
    second = await Ledger.open(tmp_path)
    await second.aclose()
    assert (first.restored.epoch, second.restored.epoch) == (1, 2)
    assert first.restored.ledger_id == second.restored.ledger_id
    assert first.restored.rows == ()
    assert second.restored.rows == (Row("node", "a", {"名": "机"}),)
    assert second.restored.last_time == 60.5


async def test_lives_are_numbered_by_the_clock_and_never_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await Ledger.open(tmp_path / "one")).aclose()
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    epochs = []
    for name, clock in (("one", 1000), ("one", 1000), ("other", 1010), ("one", 900)):
        monkeypatch.setattr(ledger_store, "seconds_so_far", lambda clock=clock: clock)
        ledger = await Ledger.open(tmp_path / name)
        epochs.append(ledger.restored.epoch)
        await ledger.aclose()
    assert epochs == [1000, 1001, 1010, 1002]


async def test_two_ledgers_never_share_an_id(tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        ledger = await Ledger.open(tmp_path / name)
        ids.add(ledger.restored.ledger_id)
        await ledger.aclose()
    assert len(ids) == 2


async def test_the_disk_is_asked_to_keep_every_commit(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path)
    db = ledger._store._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    await ledger.aclose()


async def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "state")
    await ledger.aclose()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state/ledger.sqlite").stat().st_mode) == 0o600


async def test_rows_and_journal_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path)
    unwritable = JournalEntry(2.0, ({"type": "x", "value": float("nan")},), PLAN)
    with pytest.raises(ValueError, match="not JSON compliant"):
        await ledger.commit(2.0, [Row("node", "a", {})], [entry(1.0), unwritable])
    assert await ledger.read_journal() == []
    await ledger.commit(3.0, [], [entry(3.0)])  # the ledger is usable after it
    await ledger.aclose()
    again = await Ledger.open(tmp_path)
    await again.aclose()
    assert again.restored.rows == ()


async def test_a_full_disk_is_told_as_such_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path)
    db = ledger._store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    ledger._store._tried_at = ledger._store._free_then = 2**62  # there is no room to be made
    big = Row("node", "a", {"log": "x" * 100_000})
    with pytest.raises(LedgerWriteFailed, match="full"):
        await ledger.commit(1.0, [Row("node", "small", {}), big], [entry(1.0)])
    db.execute("PRAGMA max_page_count = 100000")
    await ledger.commit(2.0, [big], [entry(2.0)])
    await ledger.aclose()
    again = await Ledger.open(tmp_path)
    assert [row.id for row in again.restored.rows] == ["a"]
    assert [e.at for e in await again.read_journal()] == [2.0]
    await again.aclose()


async def test_a_second_controller_is_kept_out_by_name_of_the_first(tmp_path: Path) -> None:
    import os

    first = await Ledger.open(tmp_path)
    with pytest.raises(StateDirInUse, match=rf"another controller \(pid {os.getpid()}\)"):
        await Ledger.open(tmp_path)
    await first.aclose()
    second = await Ledger.open(tmp_path)
    assert second.restored.epoch == 2  # the refused one has not touched it
    await second.aclose()


def damage_nothing_there(path: Path) -> None:
    path.write_bytes(b"")


def damage_text(path: Path) -> None:
    path.write_text("this is not a database at all, only some text\n" * 100)


def damage_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 2000)


def damage_later_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xee" * (path.stat().st_size - 4096))


def damage_truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def damage_row(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE rows SET doc = '{\"x\": ' WHERE id = '7'")
    db.commit()
    db.close()


def damage_foreign(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()


def damage_future(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.commit()
    db.close()


def damage_no_identity(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DELETE FROM meta WHERE key = 'ledger_id'")
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damage_nothing_there, "not a ledger of elasticd"),
        (damage_text, "damaged or cannot be read"),
        (damage_first_page, "damaged or cannot be read"),
        (damage_later_pages, "damaged or cannot be read"),
        (damage_truncated, "damaged or cannot be read"),
        (damage_row, "damaged or cannot be read"),
        (damage_foreign, "not a ledger of elasticd"),
        (damage_future, "written by a newer elasticd"),
        (damage_no_identity, "no ledger_id in it"),
    ],
)
async def test_a_file_that_cannot_be_trusted_is_refused_and_left_alone(
    tmp_path: Path, damage: object, told: str
) -> None:
    ledger = await Ledger.open(tmp_path)
    await ledger.commit(
        1.0, [Row("node", str(n), {"x": "y" * 500}) for n in range(50)], [entry(1.0)]
    )
    await ledger.aclose()
    path = tmp_path / "ledger.sqlite"
    assert callable(damage)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(LedgerRefused, match=told) as refusal:
        await Ledger.open(tmp_path)
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before
    with pytest.raises(LedgerRefused, match=told):  # and the lock was let go
        await Ledger.open(tmp_path)


def _a_directory(path: Path) -> None:
    path.mkdir()


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _a_link_to_a_disk_that_is_away(path: Path) -> None:
    path.symlink_to(path.parent / "mnt" / path.name)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ledger.sqlite", _a_directory),
        ("ledger.sqlite", _a_pipe),
        ("ledger.sqlite", _a_device),
        ("ledger.sqlite", _a_link_to_a_disk_that_is_away),
        ("controller.lock", _a_directory),
    ],
)
async def test_what_is_no_file_is_refused_with_its_name_and_never_waited_for(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    with pytest.raises(LedgerRefused) as refusal:
        await Ledger.open(tmp_path)
    assert str(tmp_path / name) in str(refusal.value)
    assert refusal.value.exit_code == 2


async def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file stands here")
    with pytest.raises(LedgerRefused, match="cannot be opened or made"):
        await Ledger.open(tmp_path / "state")


@pytest.mark.parametrize("earlier_life", [True, False])
async def test_a_disk_that_takes_nothing_is_a_state_that_passes(
    tmp_path: Path, earlier_life: bool
) -> None:
    if earlier_life:
        await (await Ledger.open(tmp_path)).aclose()
    bound = subprocess.run(["mount", "--bind", tmp_path, tmp_path], capture_output=True)
    if bound.returncode != 0:
        pytest.skip("making a disk read-only needs root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", tmp_path], check=True)
        with pytest.raises(LedgerUnavailable, match="Read-only file system") as refusal:
            await Ledger.open(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert "damaged" not in str(refusal.value)
    assert refusal.value.exit_code == 1  # tried again
    await (await Ledger.open(tmp_path)).aclose()


async def test_a_ledger_that_is_gone_but_left_traces_is_not_an_empty_fleet(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite-wal").write_bytes(b"rest")
    with pytest.raises(LedgerRefused, match="lost or moved away"):
        await Ledger.open(tmp_path)


async def test_a_first_start_that_was_cut_off_leaves_no_half_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite.new").write_bytes(b"half")
    ledger = await Ledger.open(tmp_path)
    assert ledger.restored.epoch == 1
    await ledger.aclose()


async def test_the_journal_keeps_the_newest_entries_within_its_bounds(tmp_path: Path) -> None:
    by_count = await Ledger.open(tmp_path / "count", JournalLimits(entries=200))
    for at in range(500):
        await by_count.commit(float(at), [], [entry(float(at))])
    kept = [e.at for e in await by_count.read_journal(limit=10_000)]
    await by_count.aclose()
    assert kept[-1] == 499.0
    assert 100 <= len(kept) <= 200
    assert kept == sorted(kept)

    by_size = await Ledger.open(tmp_path / "size", JournalLimits(size=10_000))
    for at in range(50):
        await by_size.commit(float(at), [], [entry(float(at), "x" * 1000)])
    sizes = [len(str(e)) for e in await by_size.read_journal()]
    await by_size.aclose()
    assert 5 <= len(sizes) <= 10


async def test_one_entry_larger_than_the_bound_is_kept(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path, JournalLimits(size=100))
    await ledger.commit(1.0, [], [entry(1.0)])
    await ledger.commit(2.0, [], [entry(2.0, "x" * 1000)])
    assert [e.at for e in await ledger.read_journal()] == [2.0]
    await ledger.aclose()


async def test_the_journal_reads_from_a_number_or_a_time_on_also_from_outside(
    tmp_path: Path,
) -> None:
    ledger = await Ledger.open(tmp_path)
    for at in (1.0, 2.0, 3.0):
        await ledger.commit(at, [], [entry(at)])
    everything = await ledger.read_journal()
    assert [e.seq for e in everything] == [1, 2, 3]
    assert [e.at for e in await ledger.read_journal(since_seq=1)] == [2.0, 3.0]
    assert [e.at for e in await ledger.read_journal(since=3.0)] == [3.0]
    assert await asyncio.to_thread(read_journal_file, tmp_path) == everything  # beside a writer
    await ledger.aclose()
    assert read_journal_file(tmp_path, limit=1) == everything[:1]
    with pytest.raises(LedgerRefused, match="no ledger here"):
        read_journal_file(tmp_path / "elsewhere")


@pytest.mark.parametrize(("ahead", "told"), [(3 * 86400.0 + 60, "3 days ahead"), (60.0, "")])
async def test_a_clock_that_was_far_ahead_is_told_and_time_does_not_go_back(
    tmp_path: Path, ahead: float, told: str
) -> None:
    first = await Ledger.open(tmp_path)
    assert first.summary()["ahead"] == 0.0
    await first.commit(time.time() + ahead, [Row("node", "a", {})], [])
    await first.aclose()
    with structlog.testing.capture_logs() as logged:
        second = await Ledger.open(tmp_path)
    remarks = second.summary()["told"]
    await second.aclose()
    assert second.restored.last_time > time.time() + ahead - 30
    assert second.summary()["ahead"] == pytest.approx(ahead, abs=30)
    assert len(remarks) == (1 if told else 0)
    assert all(told in remark for remark in remarks)
    said = [line for line in logged if line["event"] == "clock_behind_ledger"]
    assert [line["what"] for line in said] == remarks
