"""The previous copy: whole or not at all, never over a better one, and no commit waits for it."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalLimits, Ledger, LedgerStore
from elasticd.runtime.ledger_content import connect, read_content, write_meta
from elasticd.runtime.ledger_copier import PERIOD, RETRY, Copier
from elasticd.runtime.ledger_copy import COPIED, copy_ledger, in_words, read_copy
from tests.runtime.ledger_places import NAME, entry, mounted, opened, overwrite, written

COPY = "ledger.previous.sqlite"


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def copying(store: LedgerStore, path: Path, clock: Clock) -> Copier:
    """Another copier of an open ledger, with a clock of its own."""
    store.copier.stop()
    store.copier = Copier(path, clock)
    store.copier.start()
    assert store.copier.wait_for_tries(1, 20.0)
    return store.copier


def test_a_clean_start_leaves_a_copy_of_everything(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = read_copy(path)
    store = opened(tmp_path)
    copy = tmp_path / COPY
    found = read_copy(copy)
    assert found.rows == before.rows == store.restored.rows
    epoch = str(store.restored.epoch)
    assert dict(found.meta) == {**before.meta, "epoch": epoch, COPIED: epoch}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM journal").fetchone() == (60,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # one file, no log
    state = store.copier.state()
    assert state.age is not None
    assert state.age < 60.0
    assert state.error == ""
    store.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("controller.lock", COPY, NAME, f"{NAME}-mark"),
    ]


def test_a_copy_is_made_at_most_hourly_and_only_when_rows_changed(
    tmp_path: Path, clock: Clock
) -> None:
    store = opened(tmp_path)
    copier = copying(store, tmp_path / NAME, clock)
    store.commit(1.0, [Row("node", "a", {})], [])
    clock.now = PERIOD - 1.0
    store.commit(2.0, [], [entry(2.0)])
    assert read_copy(tmp_path / COPY).rows == ()
    clock.now = PERIOD
    store.commit(3.0, [Row("node", "b", {})], [])
    assert copier.wait_for_tries(2, 20.0)
    assert [row.id for row in read_copy(tmp_path / COPY).rows] == ["a", "b"]
    clock.now = 5 * PERIOD
    store.commit(4.0, [], [entry(4.0)])  # history alone
    store.close()
    assert not copier.wait_for_tries(3, 0.0)


def test_commits_go_on_while_a_copy_is_under_way_and_are_not_in_it(tmp_path: Path) -> None:
    path = written(tmp_path, rows=400)
    store = opened(tmp_path)
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(20.0)

    def copy() -> None:
        with contextlib.closing(connect(f"{path.as_uri()}?mode=ro", uri=True)) as origin:
            copy_ledger(origin, path, tmp_path / "other.sqlite", wait)

    thread = threading.Thread(target=copy)
    thread.start()
    assert inside.wait(20.0)
    for n in range(50):
        store.commit(10.0 + n, [Row("node", f"n-{n}", {"phase": "gone"})], [entry(10.0 + n)])
    go_on.set()
    thread.join()
    store.close()
    phases = {row.doc["phase"] for row in read_copy(tmp_path / "other.sqlite").rows if row.doc}
    assert phases == {"ready"}
    assert not list(tmp_path.glob("*.new"))


def test_a_ledger_that_went_bad_while_it_ran_does_not_replace_its_copy(
    tmp_path: Path, clock: Clock
) -> None:
    path = written(tmp_path)
    store = opened(tmp_path)
    copier = copying(store, path, clock)
    good = (tmp_path / COPY).read_bytes()
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    clock.now = PERIOD
    store.commit(9.0, [Row("other", "b", {})], [])
    assert copier.wait_for_tries(2, 20.0)
    assert "does not match its checksum" in copier.state().error
    assert (tmp_path / COPY).read_bytes() == good
    assert not list(tmp_path.glob("*.new"))
    store.close()


def test_on_a_full_disk_no_copy_is_tried_and_the_old_one_stays(
    tmp_path: Path, clock: Clock
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=12m") as again:
        path = written(disk)
        store = opened(disk)
        copier = copying(store, path, clock)
        good = (disk / COPY).read_bytes()
        again("size=4m")
        clock.now = PERIOD
        store.commit(9.0, [Row("node", "b", {})], [])
        assert copier.wait_for_tries(2, 20.0)
        assert "too little room" in copier.state().error
        assert (disk / COPY).read_bytes() == good
        again("size=12m")
        clock.now += RETRY
        store.commit(10.0, [Row("node", "c", {})], [])
        assert copier.wait_for_tries(3, 20.0)
        assert copier.state().error == ""
        assert {"b", "c"} <= {row.id for row in read_copy(disk / COPY).rows}
        store.close()


def test_a_stop_gives_a_copy_up_and_leaves_the_old_one(tmp_path: Path, clock: Clock) -> None:
    path = written(tmp_path, rows=2000)
    store = opened(tmp_path)
    good = (tmp_path / COPY).read_bytes()
    store.copier.stop()
    store.copier = Copier(path, clock)
    store.copier._stop.set()  # as a stop that comes between two steps
    assert store.copier._copy() != ""
    store.close()
    assert (tmp_path / COPY).read_bytes() == good
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("other", ["ledger_id", "last_time"])
def test_a_copy_that_knows_more_than_the_ledger_is_kept_aside(tmp_path: Path, other: str) -> None:
    path = written(tmp_path)
    opened(tmp_path).close()
    with contextlib.closing(connect(str(tmp_path / COPY))) as db:
        write_meta(db, other, {"ledger_id": "f" * 32, "last_time": "7e9"}[other])
    better = (tmp_path / COPY).read_bytes()
    opened(tmp_path).close()  # somebody has put an older ledger in its place
    [kept] = tmp_path.glob("ledger.previous.kept-*.sqlite")
    assert kept.read_bytes() == better
    assert read_copy(tmp_path / COPY).rows == read_copy(path).rows


def test_what_a_killed_copy_left_behind_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / f"{COPY}.new").write_bytes(b"half")
    opened(tmp_path).close()
    assert read_copy(tmp_path / COPY).rows == ()
    assert not list(tmp_path.glob("*.new"))


def test_a_place_that_takes_no_copy_is_a_warning_and_no_fault(tmp_path: Path) -> None:
    written(tmp_path, rows=0)
    (tmp_path / COPY).mkdir()
    store = opened(tmp_path)
    assert store.copier.state().error
    store.commit(1.0, [Row("node", "a", {})], [])
    store.close()
    assert [row.id for row in read_copy(tmp_path / NAME).rows] == ["a"]


async def test_the_status_tells_of_the_copy(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path, JournalLimits(), "7")
    assert ledger._store.copier.wait_for_tries(1, 20.0)
    told = ledger.summary()
    await ledger.commit(1.0, [], [entry(1.0), entry(2.0, core="8")])
    assert [e.core for e in await ledger.read_journal()] == ["7", "8"]
    await ledger.aclose()
    assert told["copy_age"] < 60.0
    assert (told["copy_error"], told["told"]) == ("", [])


def test_a_copy_reads_as_the_ledger_it_is_of(tmp_path: Path) -> None:
    path = written(tmp_path)
    opened(tmp_path).close()
    with contextlib.closing(connect(str(tmp_path / COPY))) as db:
        assert read_content(db).rows == read_copy(path).rows


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(5.0, "5 seconds"), (60.0, "1 minute"), (7300.0, "2 hours"), (200_000.0, "2 days")],
)
def test_an_age_is_told_in_one_unit(seconds: float, told: str) -> None:
    assert in_words(seconds) == told


def test_an_orderly_stop_leaves_a_copy_of_what_has_changed_since_the_last_one(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    assert store.copier.wait_for_tries(1, 20.0)
    store.commit(1.0, [Row("node", "a", {})], [])
    assert read_copy(tmp_path / COPY).rows == ()
    store.close()
    assert [row.id for row in read_copy(tmp_path / COPY).rows] == ["a"]


def test_a_stop_copies_nothing_if_no_row_has_changed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.copier.wait_for_tries(1, 20.0)
    before = (tmp_path / COPY).stat().st_ino
    store.commit(1.0, [], [entry(1.0)])
    store.close()
    assert (tmp_path / COPY).stat().st_ino == before


def test_a_stop_tries_once_and_goes_on_where_no_copy_can_be_made(
    tmp_path: Path, clock: Clock
) -> None:
    path = written(tmp_path)
    store = opened(tmp_path)
    copier = copying(store, path, clock)
    good = (tmp_path / COPY).read_bytes()
    overwrite(path, path.read_bytes().index(b'"phase":"ready"') + 10, b"X")
    store.commit(9.0, [Row("other", "b", {})], [])
    store.close()
    assert copier.wait_for_tries(2, 0.0)
    assert not copier.wait_for_tries(3, 0.0)
    assert (tmp_path / COPY).read_bytes() == good


def test_a_copy_that_would_hold_up_a_stop_is_not_begun(tmp_path: Path, clock: Clock) -> None:
    store = opened(tmp_path)
    copier = copying(store, tmp_path / NAME, clock)
    copier.rows_changed()
    copier.stop(last=0.0)
    assert not copier.wait_for_tries(2, 0.0)
    store.close()
