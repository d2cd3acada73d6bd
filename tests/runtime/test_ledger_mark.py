"""A ledger that has lost its latest commits is refused; one that has not is never accused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.core.fleet import Row
from elasticd.runtime.ledger import JournalLimits, LedgerStore
from elasticd.runtime.ledger_content import write_meta
from elasticd.runtime.ledger_errors import LedgerRefused
from tests.runtime.ledger_places import NAME, entry, opened, overwrite, pages_of, written

LOG = f"{NAME}-wal"
MARK = f"{NAME}-mark"
COPY = "ledger.previous.sqlite"


def killed(state_dir: Path, *names: str) -> None:
    """A life that writes these rows and is killed; its one copy is of before them."""
    child = os.fork()
    if child == 0:
        store = opened(state_dir)
        store.copier.stop()
        for number, name in enumerate(names):
            store.commit(100.0 + 60 * number, [Row("node", name, {})], [entry(100.0)])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def rows_of(state_dir: Path) -> set[str]:
    store = opened(state_dir)
    store.close()
    return {row.id for row in store.restored.rows}


def refusal(state_dir: Path) -> str:
    before = contents(state_dir)
    with pytest.raises(LedgerRefused) as refused:
        LedgerStore(state_dir, JournalLimits())
    assert contents(state_dir) == before
    assert refused.value.exit_code == 2
    return str(refused.value)


def contents(state_dir: Path) -> dict[str, bytes]:
    """What is kept of a ledger; the shared memory is no part of it."""
    return {path.name: path.read_bytes() for path in state_dir.glob("ledger*[!m]")}


def run_command(told: str) -> None:
    command = told.split("run:\n")[1].split("\n")[0].strip()
    subprocess.run(["sh", "-c", command], check=True)


def _gone(log: Path) -> None:
    log.unlink()
    log.with_name(f"{NAME}-shm").unlink()


def _emptied(log: Path) -> None:
    log.write_bytes(b"")


def _one_bit(log: Path) -> None:
    overwrite(log, 32 + 24 + 100, bytes([log.read_bytes()[32 + 24 + 100] ^ 1]))


def _cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


@pytest.mark.parametrize("lose", [_gone, _emptied, _one_bit, _cut])
def test_a_log_that_is_lost_after_a_kill_is_no_older_fleet(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    written(tmp_path, rows=1)
    killed(tmp_path, "a", "b", "c", "d")
    lose(tmp_path / LOG)
    told = refusal(tmp_path)
    assert "commits are missing" in told
    assert f"as {MARK} tells" in told
    assert f"its log {LOG} is {'gone' if lose is _gone else 'damaged'}" in told
    run_command(told)
    assert "n-0" in rows_of(tmp_path)
    assert not list(tmp_path.glob("ledger.previous.kept*"))


@pytest.mark.parametrize(("lives", "told"), [(0, False), (1, True)])
def test_a_loss_is_told_in_time_only_where_what_is_left_has_a_time(
    tmp_path: Path, lives: int, told: bool
) -> None:
    for _ in range(lives):
        store = opened(tmp_path)
        store.commit(40.0, [], [])
        store.close()
    killed(tmp_path, "n-1")
    _gone(tmp_path / f"{NAME}-wal")
    text = refusal(tmp_path)
    assert "the latest commit is missing" in text
    assert ("up to 1 minute after what it holds" in text) is told
    assert ("up to" in text) is told


def test_what_is_left_is_gone_on_from_where_no_copy_knows_more(tmp_path: Path) -> None:
    killed(tmp_path, "a", "b", "c", "d")
    _cut(tmp_path / LOG)
    told = refusal(tmp_path)
    assert "no copy beside it knows more than what is left" in told
    assert "ended as orphans" in told
    run_command(told)
    assert {"a"} <= rows_of(tmp_path) < {"a", "b", "c", "d"}


def test_the_log_put_back_is_the_whole_ledger_again(tmp_path: Path) -> None:
    killed(tmp_path, "a", "b")
    (tmp_path / LOG).rename(tmp_path / "away")
    assert "If a file was moved away, put it back" in refusal(tmp_path)
    (tmp_path / "away").rename(tmp_path / LOG)
    assert rows_of(tmp_path) == {"a", "b"}


def test_a_copy_restored_as_documented_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    written(tmp_path, rows=2)
    killed(tmp_path, "a")
    documented = (
        "mkdir ledger.damaged && mv ledger.sqlite* ledger.damaged/ && "
        "cp -p ledger.previous.sqlite ledger.sqlite"
    )
    subprocess.run(["sh", "-c", documented], cwd=tmp_path, check=True)
    assert not (tmp_path / MARK).exists()
    assert rows_of(tmp_path) == {"n-0", "n-1"}


def test_a_copy_put_in_place_beside_the_mark_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    written(tmp_path, rows=2)
    killed(tmp_path, "a")
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"{NAME}{end}").unlink()
    shutil.copyfile(tmp_path / COPY, tmp_path / NAME)
    assert rows_of(tmp_path) == {"n-0", "n-1"}
    killed(tmp_path, "b")  # and it has a mark of its own from there on
    _gone(tmp_path / LOG)
    assert "is missing" in refusal(tmp_path)


@pytest.mark.parametrize("mark_too", [False, True])
def test_an_older_file_in_the_ledgers_place_is_refused_also_by_its_copy_alone(
    tmp_path: Path, mark_too: bool
) -> None:
    older = written(tmp_path, rows=1).read_bytes()
    killed(tmp_path, "a")
    opened(tmp_path).close()
    (tmp_path / NAME).write_bytes(older)
    if mark_too:
        (tmp_path / MARK).unlink()
    told = refusal(tmp_path)
    assert f"{COPY if mark_too else MARK} tells of later lives" in told
    run_command(told)
    assert rows_of(tmp_path) == {"n-0", "a"}


@pytest.mark.parametrize("data", [b"", b"\0" * 128, b"elasticd-mark-1 x", b"\xff" * 500])
def test_a_mark_that_a_power_cut_has_ruined_accuses_nobody(tmp_path: Path, data: bytes) -> None:
    killed(tmp_path, "a")
    (tmp_path / MARK).write_bytes(data)
    assert rows_of(tmp_path) == {"a"}
    killed(tmp_path, "b")
    _gone(tmp_path / LOG)
    assert "is missing" in refusal(tmp_path)  # it was written anew


def test_a_mark_that_is_behind_or_missing_accuses_nobody(tmp_path: Path) -> None:
    killed(tmp_path, "a")
    behind = (tmp_path / MARK).read_bytes()
    killed(tmp_path, "b")
    (tmp_path / MARK).write_bytes(behind)
    killed(tmp_path, "c")
    (tmp_path / MARK).unlink()
    assert rows_of(tmp_path) == {"a", "b", "c"}


def test_the_mark_of_another_ledger_accuses_nobody(tmp_path: Path) -> None:
    killed(tmp_path / "other", *"abcdef")
    killed(tmp_path / "state", "a")
    shutil.copyfile(tmp_path / "other" / MARK, tmp_path / "state" / MARK)
    assert rows_of(tmp_path / "state") == {"a"}


def test_a_commit_never_waits_for_the_mark_and_has_it_behind_the_ledger_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.copier.stop()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    marks = [(tmp_path / MARK).read_bytes()]
    real = store._write

    def look(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        assert (tmp_path / MARK).read_bytes() == marks[-1]  # on the disk, and not marked yet

    monkeypatch.setattr(store, "_write", look)
    for at in range(1, 4):
        store.commit(float(at), [Row("node", "a", {"at": at})], [])
        marks.append((tmp_path / MARK).read_bytes())
    store.close()
    assert synced == []
    assert len(set(marks)) == 4


def test_a_mark_that_cannot_be_written_fails_no_commit(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / MARK).unlink()
    (tmp_path / MARK).mkdir()
    store.commit(1.0, [Row("node", "a", {})], [])
    (tmp_path / MARK).rmdir()
    store.commit(2.0, [Row("node", "b", {})], [])
    assert (tmp_path / MARK).stat().st_size == 128
    assert (tmp_path / MARK).stat().st_mode & 0o777 == 0o600
    store.close()


@pytest.mark.parametrize("left", [[MARK], [LOG, MARK], [MARK, COPY], [LOG, MARK, COPY]])
def test_a_ledger_that_is_gone_is_told_with_all_that_it_left_and_how_to_begin_anew(
    tmp_path: Path, left: list[str]
) -> None:
    killed(tmp_path, "a")
    for name in {NAME, LOG, COPY} - set(left):
        (tmp_path / name).unlink()
    told = refusal(tmp_path)
    assert f"missing, but {', '.join(left)} " in told
    assert ("To start from it" in told) == (COPY in left)
    begin = told.split("o begin with an empty fleet, run ")[1]
    subprocess.run(["sh", "-c", begin], check=True)
    assert rows_of(tmp_path) == set()


def test_a_ledger_behind_a_link_keeps_what_its_killed_writer_wrote(tmp_path: Path) -> None:
    real, state = tmp_path / "disk", tmp_path / "state"
    written(real, rows=1)
    state.mkdir()
    (state / NAME).symlink_to(real / NAME)
    killed(state, "a")
    assert (real / LOG).exists()  # SQLite keeps it there
    assert rows_of(state) == {"n-0", "a"}
    killed(state, "b")
    (real / LOG).unlink()
    assert "is missing" in refusal(state)


def test_a_ledger_that_is_written_anew_or_was_never_marked_accuses_nobody(tmp_path: Path) -> None:
    path = written(tmp_path, rows=3, entries=400)
    pages = pages_of(path, "journal")
    overwrite(path, pages[len(pages) // 2][0], b"\xee" * 4096)
    store = opened(tmp_path)
    assert store.restored.told
    with store._db:
        write_meta(store._db, "commits", "0")  # as an elasticd that counts none left it
    store.close()
    (tmp_path / MARK).unlink()
    (tmp_path / COPY).unlink()
    assert len(rows_of(tmp_path)) == 3
