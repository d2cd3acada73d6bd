"""Disks that are full, read-only or broken: told as such, survived, and gone on with by itself."""

from __future__ import annotations

import os
import re
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger import (
    JournalLimits,
    LedgerStore,
    LedgerUnavailable,
    LedgerWriteFailed,
)
from elasticd.runtime.ledger_errors import LedgerRefused
from tests.runtime.ledger_places import NAME, entry, mounted, opened, written

BIG = {"pad": "x" * 30_000}


def rows_of(state_dir: Path) -> set[str]:
    store = opened(state_dir)
    store.close()
    return {row.id for row in store.restored.rows}


def fill(store: LedgerStore) -> set[str]:
    """Commits until the disk takes no more; the rows that it took."""
    taken: set[str] = set()
    while len(taken) < 1000:
        name = f"n-{len(taken)}"
        try:
            store.commit(1.0, [Row("node", name, {"pad": "x" * 1500})], [entry(1.0)])
        except LedgerWriteFailed:
            return taken
        taken.add(name)
    raise AssertionError("it never fills up")


@pytest.mark.parametrize("size", ["128k", "256k"])
def test_a_disk_that_fills_up_loses_nothing_and_goes_on_when_there_is_room(
    tmp_path: Path, size: str
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, f"size={size}") as again:
        store = opened(disk)
        taken = fill(store)
        for n in range(3):  # a refusal leaves nothing behind
            with pytest.raises(LedgerWriteFailed):
                store.commit(2.0, [Row("node", f"late-{n}", BIG)], [])
        assert 1 <= len(store.read_journal(0, 0.0, 1000)) <= len(taken)
        again("size=9m")
        store.commit(3.0, [Row("node", "after", BIG)], [entry(3.0)])
        store.close()
        assert rows_of(disk) == taken | {"after"}


def changed_until_full(store: LedgerStore, most: int) -> int:
    """Changes the same few rows again and again; how often the disk took it."""
    for n in range(most):
        try:
            store.commit(
                float(n), [Row("node", str(n % 8), {"n": f"{n:06}", "pad": "x" * 900})], []
            )
        except LedgerWriteFailed:
            return n
    return most


def test_on_a_small_disk_the_ledgers_own_log_does_not_take_the_last_of_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=256k"):
        store = opened(disk)
        assert changed_until_full(store, 500) == 500
        store.close()


def test_a_disk_that_the_log_has_filled_takes_writes_again_by_itself(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=256k"):
        store = opened(disk)
        assert changed_until_full(store, 8) == 8
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store._db.execute("PRAGMA wal_autocheckpoint = 0")
        assert changed_until_full(store, 200) == 200
        store.close()


def test_the_log_of_a_killed_life_on_a_full_disk_is_emptied_at_the_start(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=256k"):

        def life() -> None:
            store = opened(disk)
            assert changed_until_full(store, 8) == 8
            store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            store._db.execute("PRAGMA wal_autocheckpoint = 0")
            assert changed_until_full(store, 10) == 10
            free = os.statvfs(disk)
            (disk / "other").write_bytes(b"x" * free.f_bavail * free.f_frsize)
            os._exit(0)

        assert in_a_process(life) == 0
        assert (disk / f"{NAME}-wal").stat().st_size > 50_000
        assert len(rows_of(disk)) == 8


@pytest.mark.parametrize("size", [128, 192, 1024])
def test_a_small_disk_is_never_full_for_good_for_history_makes_room_for_rows(
    tmp_path: Path, size: int
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, f"size={size}k"):
        last = size * 2
        for first in (0, last):  # the second life begins where the first has come to
            store = opened(disk)
            for at in range(first, first + last):
                row = Row("node", str(at % 6), {"n": f"{at:06}", "pad": "x" * 500})
                store.commit(float(at), [row], [entry(float(at), "j" * 1500)])
            kept = store.read_journal(0, 0.0, 10_000)
            assert kept[-1].at == first + last - 1
            store.close()
        told = {int(row.doc["n"]) for row in opened_rows(disk) if row.doc is not None}
        assert told == set(range(2 * last - 6, 2 * last))


def opened_rows(state_dir: Path) -> tuple[Row, ...]:
    store = opened(state_dir)
    store.close()
    return store.restored.rows


def filled_by_its_log(disk: Path) -> LedgerStore:
    """A store whose log has taken all there was before it came into the file."""
    store = opened(disk)
    store._tried_at = store._free_then = 2**62
    store._db.execute("PRAGMA wal_autocheckpoint = 0")
    store._db.execute("PRAGMA max_page_count = 100000")
    for n in range(500):
        try:
            store.commit(float(n), [Row("node", str(n % 8), {"n": n, "pad": "x" * 900})], [])
        except LedgerWriteFailed:
            return store
    raise AssertionError("it never fills up")


def filled_and_killed(disk: Path) -> None:
    filled_by_its_log(disk)
    os._exit(0)


def test_a_log_that_fills_the_disk_and_that_the_file_has_no_room_for_is_emptied_by_the_next_write(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=192k"):
        store = filled_by_its_log(disk)
        assert os.statvfs(disk).f_bavail == 0
        store._tried_at = store._free_then = -100
        assert changed_until_full(store, 100) == 100
        store.close()
        assert len(rows_of(disk)) == 8


def test_a_log_that_fills_the_disk_and_that_the_file_has_no_room_for_is_emptied_at_the_start(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=192k"):
        assert in_a_process(lambda: filled_and_killed(disk)) == 0
        assert os.statvfs(disk).f_bavail == 0
        assert len(rows_of(disk)) == 8


def test_a_full_disk_that_others_have_filled_costs_no_history(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=4m"):
        store = opened(disk)
        for n in range(50):
            store.commit(float(n), [], [entry(float(n), "j" * 1500)])
        (disk / "other").write_bytes(b"x" * os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize)
        with pytest.raises(LedgerWriteFailed, match="full"):
            store.commit(100.0, [Row("node", str(n), BIG) for n in range(50)], [])
        assert len(store.read_journal(0, 0.0, 100)) == 50
        store.close()


@pytest.mark.parametrize("size", [16, 64])
def test_a_disk_on_which_no_ledger_can_ever_work_is_told_with_the_least_that_does(
    tmp_path: Path, size: int
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, f"size={size}k"):
        with pytest.raises(LedgerUnavailable, match=f"{size} KiB in all.*128 KiB is the least"):
            LedgerStore(disk, JournalLimits())
        assert not list(disk.iterdir())


def test_rows_that_do_not_fit_on_the_disk_at_all_are_refused_with_its_size(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=128k"):
        store = opened(disk)
        with pytest.raises(LedgerWriteFailed, match=r"full: .* 128 KiB in all: make room there"):
            store.commit(1.0, [Row("node", str(n), BIG) for n in range(5)], [])
        store.close()


@pytest.mark.parametrize("how", ["away", "another"])
def test_a_ledger_that_was_taken_away_says_when_putting_it_back_needs_a_restart(
    tmp_path: Path, how: str
) -> None:
    store = opened(tmp_path)
    path, aside = tmp_path / NAME, tmp_path / "aside"
    path.rename(aside)
    if how == "another":
        path.write_bytes(aside.read_bytes())
    with pytest.raises(LedgerWriteFailed, match="put it back; if it comes back as another file"):
        store.commit(1.0, [], [])
    aside.rename(path)  # the very file: no restart is needed
    store.commit(1.0, [], [])
    store.close()


@pytest.mark.parametrize("free", [4, 16, 32])
def test_a_first_start_on_a_full_disk_passes_and_leaves_no_half_ledger(
    tmp_path: Path, free: int
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=256k") as again:
        (disk / "other").write_bytes(b"x" * (256 - free) * 1024)
        with pytest.raises(LedgerUnavailable) as full:
            LedgerStore(disk, JournalLimits())
        assert full.value.exit_code == 1
        assert "MB are free there" in str(full.value) or "No space left" in str(full.value)
        assert not list(disk.glob("*.new"))
        again("size=9m")
        assert rows_of(disk) == set()


def test_a_start_on_a_full_disk_passes_and_takes_nothing_from_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=1m") as again:
        path = written(disk)
        before = path.read_bytes()
        free = os.statvfs(disk)
        (disk / "other").write_bytes(b"x" * free.f_bavail * free.f_frsize)
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match=r"0\.0 MB are free there"):
                LedgerStore(disk, JournalLimits())
        assert path.read_bytes() == before
        again("size=9m")
        assert len(rows_of(disk)) == 60


def in_a_process(what: Callable[[], None]) -> int:
    """The exit code of a process of its own in which `what` is done: 9 where it raises."""
    child = os.fork()
    if child == 0:
        try:
            what()
        except BaseException:
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_limit_on_the_size_of_files_is_a_failed_write_that_passes(tmp_path: Path) -> None:
    def life() -> None:
        store = opened(tmp_path)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))
        store.commit(1.0, [Row("node", "small", {})], [])
        with pytest.raises(LedgerWriteFailed):
            store.commit(2.0, [Row("node", str(n), BIG) for n in range(4)], [])
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        store.commit(3.0, [Row("node", "big", BIG)], [])
        store.close()

    assert in_a_process(life) == 0
    assert rows_of(tmp_path) == {"small", "big"}


def test_a_disk_that_turns_read_only_under_it_is_a_failed_write_that_passes(tmp_path: Path) -> None:
    """The log's descriptor is exchanged for one that takes nothing, as after such a remount."""

    def life() -> None:
        store = opened(tmp_path)
        store.commit(1.0, [Row("node", "before", {})], [])
        log = tmp_path / f"{NAME}-wal"
        [fd] = [int(n.name) for n in Path("/proc/self/fd").iterdir() if points_to(n, log)]
        kept = os.dup(fd)
        os.dup2(os.open(log, os.O_RDONLY), fd)
        for n in range(2):
            with pytest.raises(LedgerWriteFailed):
                store.commit(2.0 + n, [Row("node", "lost", {})], [])
        os.dup2(kept, fd)
        store.commit(5.0, [Row("node", "after", {})], [])
        store.close()

    assert in_a_process(life) == 0
    assert rows_of(tmp_path) == {"before", "after"}


def points_to(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except OSError:
        return False


def _of_another_user(path: Path) -> None:
    path.touch(0o600)


def _empty(path: Path) -> None:
    path.touch()


def _cut(path: Path) -> None:
    whole = path.parent / "whole"
    data = written(whole).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _half_written(path: Path) -> None:
    whole = path.parent / "whole"
    data = written(whole).read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2))


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x13\x37" * 5000)


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _log_alone(path: Path) -> None:
    path.with_name(f"{NAME}-wal").write_bytes(b"rest")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_empty, "not a ledger of elasticd (empty"),
        (_cut, "the ledger is damaged"),
        (_half_written, "the ledger is damaged"),
        (_garbage, "file is not a database"),
        (_directory, "not a file, so no ledger"),
        (_pipe, "not a file, so no ledger"),
        (_dangling, "a link to /nowhere/at/all, which is not there"),
        (_log_alone, "the ledger was lost or moved away"),
    ],
)
def test_what_lies_in_the_ledgers_place_is_told_in_one_line_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    path = state / NAME
    make(path)
    before = sorted((p.name, p.lstat().st_size, p.lstat().st_mtime_ns) for p in state.iterdir())
    with pytest.raises(LedgerRefused) as refusal:
        LedgerStore(state, JournalLimits())
    text = str(refusal.value)
    assert told in text
    assert text.startswith(str(path))
    assert "\n" not in text
    assert refusal.value.exit_code == 2
    (state / "controller.lock").unlink()
    after = sorted((p.name, p.lstat().st_size, p.lstat().st_mtime_ns) for p in state.iterdir())
    assert after == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("what", ["file", "directory", "lock"])
def test_a_ledger_of_another_user_is_refused_by_name(tmp_path: Path, what: str) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o711)
    state = tmp_path / "state"
    path = written(state)
    state.chmod(0o777 if what != "directory" else 0o755)
    path.chmod(0o600 if what == "file" else 0o666)
    path.with_name(f"{NAME}-mark").chmod(0o666)
    lock = state / "controller.lock"
    lock.chmod(0o600 if what == "lock" else 0o666)
    named = {"file": path, "directory": path, "lock": lock}[what]

    def life() -> None:
        os.seteuid(65534)
        with pytest.raises(ElasticdError, match=re.escape(str(named))) as refusal:
            LedgerStore(state, JournalLimits())
        if "damaged" not in str(refusal.value):
            os._exit(refusal.value.exit_code)

    assert in_a_process(life) == (1 if what == "directory" else 2)


def test_a_lock_that_could_not_be_written_does_not_hold_the_next_try_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(LedgerUnavailable, match="No space left"):
            LedgerStore(tmp_path, JournalLimits())
    opened(tmp_path).close()
