"""With the daemon down: what the ledger's file tells, marked as old, and nothing is touched."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from elasticd.cli import main
from elasticd.cli.last_known import last_known, past_entries
from elasticd.cli.processes import tell_if_down
from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger import Ledger
from elasticd.runtime.ledger_content import write_row
from tests.cli.ledgers import AT, write_ledger
from tests.cli.real_admin import Controller, elasticd, environment, serving, started
from tests.cli.samples import sample_status

CONFIG = """
cluster: prod
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 1}]
models: [{name: m, source: "file:weights"}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "elasticd.yaml"
    path.write_text(CONFIG)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("killed", [False, True])
def test_status_shows_the_last_known_state_marked_old_and_leaves_no_trace(
    config: Path, killed: bool
) -> None:
    state = config.parent / "state"
    write_ledger(state, killed=killed)
    before = files(state)
    done = elasticd("status", "-c", config)
    assert done.returncode == 3
    assert done.stdout.startswith("OLD: this was the fleet ")
    assert "prod  LAST KNOWN STATE" in done.stdout
    assert "node-ab-1-1" in done.stdout
    assert "d ago  node node-ab-1-2 (pool here, ?): interruption notice" in _of_days(done.stdout)
    assert "healthy" not in done.stdout
    assert "no daemon answers at" in done.stderr
    if not killed:
        assert files(state) == before
    assert set(files(state)) == set(before)


def test_a_ledger_copied_with_its_log_alone_is_read_and_no_file_appears(tmp_path: Path) -> None:
    origin, copy = tmp_path / "state", tmp_path / "copy"
    write_ledger(origin, killed=True)
    copy.mkdir()
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        (copy / name).write_bytes((origin / name).read_bytes())
    before = files(copy)
    assert len(last_known(copy).status["nodes"]) == 2
    assert files(copy) == before


def test_the_last_known_state_as_json_says_that_it_is_one(config: Path) -> None:
    write_ledger(config.parent / "state")
    done = elasticd("status", "--json", "-c", config)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["reachable"], answer["last_known_at"]) == (3, False, AT)
    assert "no daemon answers" in answer["problem"]
    assert [r["model"] for r in answer["last_known"]["replicas"]] == ["通义"]


def _of_days(text: str) -> str:
    """`1112d6h` as `1112d`."""
    return re.sub(r"(\d+d)\d+h", r"\1", text)


def test_ages_of_the_last_known_state_are_of_now_and_reasons_are_not_known(config: Path) -> None:
    write_ledger(config.parent / "state")
    done = elasticd("status", "--why", "-c", config)
    assert done.returncode == 3
    assert "--why: only a daemon that runs knows the reasons" in done.stderr
    text = _of_days(done.stdout)
    ago = text.split(" ago", 1)[0].removeprefix("OLD: this was the fleet ")
    row = next(line for line in text.splitlines() if "node-ab-1-1" in line)
    assert ago in row, "a node is at least as old as the news of it"


def test_a_follower_that_finds_no_daemon_waits_for_one_and_says_so_in_one_line(
    config: Path,
) -> None:
    write_ledger(config.parent / "state")
    process = started("status", "--watch", "--json", "-c", config)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["last_known_at"] == AT
        assert json.loads(process.stdout.readline())["reachable"] is False
        path = config.parent / "state" / "run" / "admin.sock"
        path.parent.mkdir(exist_ok=True)
        with serving(Controller(sample_status()), path):
            assert json.loads(process.stdout.readline())["cluster"] == "local"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20.0)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_the_fleet_of_another_configuration_is_not_shown_for_a_socket(
    config: Path, tmp_path: Path
) -> None:
    write_ledger(config.parent / "state")
    other = tmp_path / "other.sock"
    env = environment(ELASTICD_CONFIG=str(config))
    done = elasticd("status", "--socket", other, env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{other} is not the socket of" in done.stderr


def test_events_are_read_from_the_file(config: Path) -> None:
    write_ledger(config.parent / "state")
    done = elasticd("events", "--since", "3650d", "-c", config, env=environment(TZ="UTC"))
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("2023-11-14 20:13:20  pool:here")
    assert lines[2].endswith("draining → terminating: interruption notice")
    assert "nothing later is known" in done.stderr


def test_since_counts_for_the_file_too(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    assert [entry.at for entry in past_entries(tmp_path, AT - 100.0)] == [AT - 60.0]


def write_foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()


def damage(path: Path) -> None:
    write_ledger(path.parent)
    data = bytearray(path.read_bytes())
    data[4096 : 4096 + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(data[: len(data) // 2]))


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda path: None, "no such directory; no controller has run"),
        (lambda path: path.parent.mkdir(), "no ledger here"),
        (lambda path: path.parent.write_text("x"), "not a directory"),
        (lambda path: (path.parent.mkdir(), path.write_bytes(b"")), "not a ledger of elasticd"),
        (lambda path: (path.parent.mkdir(), path.write_text("hello")), "damaged"),
        (lambda path: (path.parent.mkdir(), write_foreign(path)), "not a ledger of elasticd"),
        (damage, "damaged"),
    ],
)
def test_what_is_no_ledger_is_said_clearly(config: Path, prepare: object, told: str) -> None:
    path = config.parent / "state" / "ledger.sqlite"
    prepare(path)  # type: ignore[operator]
    done = elasticd("status", "-c", config)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "no last known state" in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_of_another_version_are_said_to_be_that(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        write_row(db, Row("node", "node-ab-1-1", {"phase": "melting"}))
    db.close()
    with pytest.raises(ElasticdError, match="another version of elasticd"):
        last_known(tmp_path)


def test_without_a_configuration_it_is_said_what_is_missing(tmp_path: Path) -> None:
    done = elasticd("status", "--socket", tmp_path / "nobody.sock", cwd=tmp_path)
    assert done.returncode == 3
    assert "name the configuration: -c FILE" in done.stderr


def test_of_a_ledger_that_was_lost_it_is_not_said_that_none_has_run(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = config.parent / "state"
    write_ledger(state)
    ledger = state / "ledger.sqlite"
    ledger.rename(state / "ledger.previous.sqlite")
    assert main(["status", "-c", str(config)]) == 3
    told = capsys.readouterr().err
    assert "the ledger is missing, its copy is there" in told
    assert "no controller has run" not in told


async def down_by(state_dir: Path, name: str | None) -> None:
    ledger = await Ledger.open(state_dir)
    await ledger.commit(AT, [Row("down", "fleet", {"by": name} if name else None)], [])
    await ledger.aclose()


def test_a_controller_that_stays_down_says_how_to_serve_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_if_down(tmp_path)
    asyncio.run(down_by(tmp_path, None))
    tell_if_down(tmp_path)
    assert capsys.readouterr().err == ""
    asyncio.run(down_by(tmp_path, "ann"))
    tell_if_down(tmp_path)
    assert "`elasticd down` holds" in (told := capsys.readouterr().err)
    assert "`elasticd controller --serve`" in told
