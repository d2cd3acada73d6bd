"""`elasticd replay`: says whether a journal is decided as it was, and hands one on."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from elasticd.cli import main
from elasticd.runtime.core_version import core_version
from tests.cli.real_admin import elasticd
from tests.core.world import World, model
from tests.runtime.lives import lived, opened

Capture = pytest.CaptureFixture[str]


def write(state_dir: Path, *seconds: float) -> None:
    """One life for each of `seconds`."""
    world = World([model(max_replicas=3)])
    for life in seconds:
        with opened(state_dir) as store, capture_logs():
            lived(world, store, life)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two lives."""
    write(tmp_path / "state", 60.0, 40.0)
    return tmp_path / "state"


def said(capsys: Capture, *argv: object) -> tuple[int, str, str]:
    code = main(["replay", *map(str, argv)])
    told = capsys.readouterr()
    return code, told.out, told.err


def change(state_dir: Path, statement: str) -> None:
    with closing(sqlite3.connect(state_dir / "ledger.sqlite")) as db:
        db.execute(statement)
        db.commit()


def test_a_journal_that_is_decided_as_it_was_is_equal_and_nothing_is_written(state: Path) -> None:
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    done = elasticd("replay", state)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f"entries, core {core_version()}")
    assert lines[1].startswith("  life 1, ")
    assert lines[2].endswith(": equal")
    assert lines[-1].startswith("EQUAL: ")
    assert done.stderr == ""
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


def test_it_works_beside_a_running_controller(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        lived(World(), store, 30.0)
        assert elasticd("replay", tmp_path).returncode == 0


def test_a_ledger_under_any_name_is_a_journal_too(
    state: Path, tmp_path: Path, capsys: Capture
) -> None:
    copy = shutil.copyfile(state / "ledger.sqlite", tmp_path / "from-a-colleague.db")
    assert said(capsys, copy)[0] == 0


def test_without_a_journal_it_is_the_configurations(state: Path, capsys: Capture) -> None:
    config = state.parent / "elasticd.yaml"
    config.write_text("state_dir: state\nmodels: []\n")
    code, out, _ = said(capsys, "-c", config)
    assert (code, out.splitlines()[0].startswith(f"{state}: ")) == (0, True)


def test_a_difference_is_shown_with_what_was_and_is_decided(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "elasticd.core.decide.on_scale_held",
        lambda state, step, event: step.because("model:m", "a hold that is not heard"),
    )
    code, out, _ = said(capsys, state, "--show", 1)
    assert code == 1
    lines = out.splitlines()
    start = next(n for n, line in enumerate(lines) if "after ScaleHeld" in line)
    assert "life 1, entry " in lines[start]
    assert lines[start + 1 : start + 3] == [
        "  - model:m: held at 3 for 40 s (test)",
        "  - model:m: 1 → 3 replicas: held at 3 by test",
    ]
    assert "  + model:m: a hold that is not heard" in lines[start:]
    assert any(line.startswith("  - LaunchNode n-") for line in lines[start:])
    assert any(line.endswith("more that were decided otherwise (--show N)") for line in lines)
    assert lines[-1].startswith("NOT EQUAL: ")


def test_the_report_as_json_holds_all_of_it(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = said(capsys, state, "--json")
    answer: dict[str, Any] = json.loads(out)
    assert (code, answer["equal"], answer["decided_otherwise"]) == (0, True, 0)
    assert [life["epoch"] for life in answer["lives"]] == [1, 2]
    monkeypatch.setattr("elasticd.core.decide.on_scale_held", lambda *_: None)
    code, out, _ = said(capsys, state, "--json")
    answer = json.loads(out)
    assert (code, answer["equal"]) == (1, False)
    [first, *_] = answer["differences"]
    assert first["events"][0]["type"] == "ScaleHeld"
    assert first["recorded"] != first["replayed"]


def test_one_life_alone_can_be_replayed(state: Path, capsys: Capture) -> None:
    code, out, _ = said(capsys, state, "--life", 2, "--json")
    assert code == 0
    assert [life["epoch"] for life in json.loads(out)["lives"]] == [2]
    code, _, err = said(capsys, state, "--life", 9)
    assert (code, "life 9" in err) == (2, True)


def test_what_another_core_decided_is_replayed_only_with_anyway(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.runtime.recorder.core_version", lambda: "0.0.1+cafe")
    write(tmp_path, 30.0)
    code, out, _ = said(capsys, tmp_path)
    assert code == 2
    assert "skipped: decided by another core: 0.0.1+cafe" in out
    assert "--anyway" in out.splitlines()[-1]
    code, out, _ = said(capsys, tmp_path, "--anyway")
    assert (code, "decided by 0.0.1+cafe: equal" in out) == (0, True)


def test_a_life_whose_beginning_was_trimmed_says_so_and_what_to_do(
    state: Path, capsys: Capture
) -> None:
    change(state, "DELETE FROM journal WHERE seq <= 3")
    code, out, _ = said(capsys, state)
    assert code == 0  # the second life is whole
    assert "life 1: entries 4 to " in out
    assert "the journal was trimmed" in out
    assert "A larger journal reaches further back" in out.splitlines()[-1]
    change(
        state,
        "DELETE FROM journal WHERE epoch = 1 OR seq = (SELECT min(seq) FROM journal "
        "WHERE epoch = 2)",
    )
    code, out, _ = said(capsys, state)
    assert (code, out.splitlines()[-1].startswith("NOTHING REPLAYED. ")) == (2, True)


def test_a_damaged_entry_is_told_and_the_next_life_is_replayed(
    state: Path, capsys: Capture
) -> None:
    change(state, "UPDATE journal SET plan = '{}' WHERE seq = 5")
    code, out, _ = said(capsys, state)
    assert code == 2
    assert "life 1: entries 5 to " in out
    assert "skipped: damaged around entry 5" in out
    assert any(line.startswith("  life 2, ") for line in out.splitlines())


def test_an_export_is_replayed_like_the_ledger_and_overwrites_nothing(
    state: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "journal.gz"
    code, out, _ = said(capsys, state, "--export", target)
    assert code == 0
    assert "nothing in it looks like a secret" in out
    assert f"zcat {target}" in out
    assert said(capsys, target)[0] == 0
    code, _, err = said(capsys, state, "--export", target)
    assert (code, "exists; remove it" in err) == (2, True)
    code, _, err = said(capsys, state, "--export", tmp_path / "no" / "x.gz")
    assert (code, "cannot be written (No such file or directory)" in err) == (2, True)


def test_an_export_that_was_cut_is_damaged_and_not_equal(
    state: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "journal.gz"
    said(capsys, state, "--export", target)
    target.write_bytes(target.read_bytes()[:-200])
    code, out, _ = said(capsys, target)
    assert code == 2
    assert "damaged" in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such directory"),
        (b"hello", "no journal; name a state directory"),
        (gzip.compress(b"hello", mtime=0), "no export of a journal"),
        (b"SQLite format 3\0 and no more", ""),
    ],
)
def test_what_is_no_journal_is_refused_with_one_message(
    tmp_path: Path, capsys: Capture, content: bytes | None, told: str
) -> None:
    place = tmp_path / "x"
    if content is not None:
        place.write_bytes(content)
    code, out, err = said(capsys, place)
    assert (code, out) == (2, "")
    assert err.startswith(f"elasticd: {place}")
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("argv", [("--life", "x"), ("--life", "0"), ("--show", "-1")])
def test_wrong_numbers_are_refused(argv: tuple[str, str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", *argv])
    assert ended.value.code == 2
    assert argv[1] in capsys.readouterr().err


def _edits(lines: list[bytes]) -> dict[str, list[bytes]]:
    """What anyone could make of an export in an editor."""
    first = json.loads(lines[1])
    changed = {
        "at": {**first, "at": 10**400},
        "far": {**first, "at": 1e300},
        "events": {**first, "events": [7]},
        "plan": {**first, "plan": 5},
        "actions": {**first, "plan": {**first["plan"], "actions": 5}},
        "wake": {**first, "plan": {**first["plan"], "wake_at": 10**400}},
        "reasons": {**first, "plan": {**first["plan"], "reasons": "x"}},
        "quiet": {**first, "quiet": 5},
    }
    made = {key: [lines[0], json.dumps(entry).encode()] for key, entry in changed.items()}
    return {**made, "deep": [lines[0], b"[" * 100_000]}


def test_an_export_that_somebody_edited_is_told_in_words(
    state: Path, tmp_path: Path, capsys: Capture
) -> None:
    export = tmp_path / "journal.gz"
    assert said(capsys, state, "--export", export)[0] == 0
    lines = gzip.decompress(export.read_bytes()).splitlines()
    for what, edited in _edits(lines).items():
        export.write_bytes(gzip.compress(b"\n".join([*edited, *lines[2:]]) + b"\n"))
        code, out, err = said(capsys, export, "--anyway")
        assert code in (1, 2), what
        assert len(err.splitlines()) + len(out.splitlines()) >= 1, what
