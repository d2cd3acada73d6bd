"""A look into a ledger from outside: what cannot be opened now is never called damaged."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli import main
from elasticd.cli.last_known import last_known, past_entries
from elasticd.cli.leak_ledger import read_ledger
from elasticd.cli.ledger_peek import peek
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger_errors import LedgerRefused, LedgerUnavailable
from elasticd.runtime.ledger_journal import read_entries, read_latest
from tests.cli.ledgers import AT, write_ledger
from tests.runtime.ledger_places import mounted, overwrite

NAME = "ledger.sqlite"


def in_a_process(what: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            what()
        except BaseException:
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def not_now(state_dir: Path) -> str:
    """What is said of a ledger with which nothing is wrong."""
    with pytest.raises(ElasticdError) as refused:
        last_known(state_dir)
    told = str(refused.value)
    assert "damaged" not in told
    assert " cp " not in told
    assert "\n" not in told
    return told


def test_a_process_with_too_many_files_open_sees_no_damage(tmp_path: Path) -> None:
    write_ledger(tmp_path, killed=True)

    def look() -> None:
        assert last_known(tmp_path).at == AT  # and all that it needs is imported
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        for left in range(3):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + left, most))
            assert "cannot be opened now" in not_now(tmp_path)

    in_a_process(look)


def test_a_full_place_for_temporary_files_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, small = tmp_path / "state", tmp_path / "tmp"
    write_ledger(state, killed=True)
    (state / f"{NAME}-shm").unlink()  # then it is read from a copy there
    with mounted(small, "size=16k"):
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        told = not_now(state)
        assert "No space left" in told
        assert str(small) in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-mark"])
def test_a_file_of_another_user_is_named(tmp_path: Path, end: str) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    state = tmp_path / "state"
    write_ledger(state, killed=True)
    state.chmod(0o755)
    for path in state.glob("ledger.*"):
        path.chmod(0o644)
    private = state / f"{NAME}{end}"
    private.chmod(0o600)

    def look() -> None:
        os.seteuid(65534)
        told = not_now(state)
        assert told.startswith(f"{private}: cannot be read (Permission denied)")
        assert "daemon's user" in told

    in_a_process(look)


def test_what_sqlite_cannot_open_now_is_said_to_be_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ledger(tmp_path)

    def busy(*args: object, **kwargs: object) -> sqlite3.Connection:
        raise exception

    exception = sqlite3.OperationalError("unable to open database file")
    exception.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    monkeypatch.setattr("elasticd.cli.ledger_peek.connect", busy)
    with pytest.raises(LedgerUnavailable, match="cannot be opened now: unable to open"):
        last_known(tmp_path)


def test_what_goes_wrong_with_the_reader_is_not_blamed_on_the_ledger(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    with pytest.raises(BrokenPipeError), peek(tmp_path):
        raise BrokenPipeError(32, "Broken pipe")


def test_of_a_ledger_that_lost_its_log_no_machine_is_known_and_its_history_is_told(
    tmp_path: Path,
) -> None:
    write_ledger(tmp_path, killed=True)
    assert len(read_ledger(tmp_path).nodes) == 2
    (tmp_path / f"{NAME}-wal").write_bytes(b"")
    view = read_ledger(tmp_path)
    assert "the latest commit is missing" in view.problem
    assert (view.ledger_id, view.missing) == ("", False)
    with pytest.raises(LedgerRefused, match="is missing"):
        last_known(tmp_path)
    assert list(past_entries(tmp_path, 0.0)) == []


def test_a_mark_that_a_living_controller_moves_on_meanwhile_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is read first, the ledger then: in between it may be written."""
    write_ledger(tmp_path)
    from elasticd.cli import ledger_peek

    real = ledger_peek.marks_of

    def meanwhile(path: Path) -> object:
        found = real(path)
        write_ledger(tmp_path)
        return found

    monkeypatch.setattr(ledger_peek, "marks_of", meanwhile)
    assert last_known(tmp_path).at == AT


def test_a_ledger_that_left_its_mark_alone_was_there(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    for path in tmp_path.glob("ledger*"):
        if path.name != f"{NAME}-mark":
            path.unlink()
    assert "missing, its mark ledger.sqlite-mark is there" in read_ledger(tmp_path).problem
    assert not read_ledger(tmp_path).missing


def _no_text(path: Path) -> None:
    at = path.read_bytes().index(b"CREATE TABLE journal")
    overwrite(path, at + 13, b"\xff\xfe")


def _schema_0(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 0")


def _no_journal(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE journal")


@pytest.mark.parametrize("damage", [_no_text, _schema_0, _no_journal])
@pytest.mark.parametrize("command", ["events", "replay", "status"])
def test_a_file_whose_schema_is_damaged_is_one_message_from_every_command(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    command: str,
) -> None:
    state, config = tmp_path / "state", tmp_path / "elasticd.yaml"
    config.write_text(
        "cluster: prod\nstate_dir: state\n"
        "node_pools: [{name: here, provider: local, max_nodes: 1}]\n"
        "models: [{name: m, source: 'file:weights'}]\n"
    )
    write_ledger(state)
    damage(state / NAME)
    code = main([command, "-c", str(config)])
    told = capsys.readouterr().err
    assert code == (2 if command == "replay" else 3)
    assert told.count("the ledger is damaged or cannot be read") == 1
    assert "Traceback" not in told


def test_a_journal_that_is_not_there_at_all_is_damage_and_no_fault(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    _no_journal(tmp_path / NAME)
    for read in (read_entries, lambda db: read_latest(db, 5)):
        with pytest.raises(LedgerRefused, match="no such table: journal"), peek(tmp_path) as db:
            list(read(db))
