"""`elasticd adopt`: shows what another ledger left, warns, asks, and says what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import main
from elasticd.core.events import AdoptRequested
from tests.cli.real_admin import Controller, serving
from tests.cli.samples import sample_status


def machine(instance_id: str, ledger_id: str, **more: Any) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "node_id": f"node-{instance_id}",
        "ledger_id": ledger_id,
        "offering": "here/z/a10/spot",
        "price_micros": 500_000,
        "currency": "USD",
        "age": 7200.0,
        **more,
    }


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("elasticd.cli.adopt.asked_by", lambda: "ann")
    status = sample_status()
    status["pools"][0]["foreign_machines"] = [machine("i-1", "left9"), machine("i-2", "left9")]
    with serving(Controller(status), tmp_path / "admin.sock") as playing:
        yield playing


def adopt(root: Path, *argv: str) -> int:
    return main(["adopt", "--socket", str(root / "admin.sock"), *argv])


def test_what_is_taken_over_is_shown_with_its_cost_a_warning_and_what_becomes_of_it(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(tmp_path, "--yes") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "i-1 left9 node-i-1 here/z/a10/spot 2h 0.50 USD 1.00 USD" in out
    assert "2 machines, 1.00 USD/h" in out
    assert "! another elasticd with this cluster name may be alive" in out
    assert "one that does not join is ended" in out
    assert "2 machines of ledger left9 are this daemon's from now on" in out
    assert controller.emitted == [AdoptRequested("left9", "ann")]


def test_it_asks_in_a_terminal_and_no_means_no(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "")
    assert adopt(tmp_path) == 1
    assert questions == ["Take over 2 machines of ledger left9? [y/N] "]
    assert controller.emitted == []


def test_without_a_terminal_nothing_is_taken_over_unless_yes_is_said(
    controller: Controller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert adopt(tmp_path) == 2
    assert "here is no terminal to ask in; nothing was done; repeat it with --yes" in (
        capsys.readouterr().err
    )
    assert controller.emitted == []


def test_one_machine_is_told_of_as_one(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0]["foreign_machines"] = [machine("i-1", "left9")]
    assert adopt(tmp_path, "--yes") == 0
    out = capsys.readouterr().out
    assert "1 machine of ledger left9 is this daemon's from now on" in out
    assert "what becomes of it\n" in out


def test_of_several_ledgers_one_must_be_chosen(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0]["foreign_machines"].append(machine("i-3", "right7"))
    assert adopt(tmp_path, "--yes") == 2
    assert "several ledgers left machines: left9, right7; choose: --ledger ID" in (
        capsys.readouterr().err
    )
    assert adopt(tmp_path, "--yes", "--ledger", "rig", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["adopted"], [m["instance_id"] for m in told["machines"]]) == ("right7", ["i-3"])
    assert controller.emitted == [AdoptRequested("right7", "ann")]


@pytest.mark.parametrize(("asked", "hint"), [("leff9", "did you mean `left9`?"), ("abc", "")])
def test_a_ledger_that_no_machine_carries_is_said_with_those_that_are_seen_and_no_table(
    controller: Controller,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    hint: str,
) -> None:
    assert adopt(tmp_path, "--yes", "--ledger", asked) == 1
    said = capsys.readouterr()
    assert f"no machine here carries the ledger id {asked!r}; machines are here of: left9" in (
        said.err
    )
    assert hint in said.err
    assert said.out == ""
    assert controller.emitted == []


def test_a_ledger_is_not_there_either_where_no_other_one_is(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0]["foreign_machines"] = []
    assert adopt(tmp_path, "--yes", "--ledger", "abc") == 1
    said = capsys.readouterr()
    assert "no machine here carries the ledger id 'abc'; of no other one either" in said.err
    assert said.out == ""


@pytest.mark.parametrize("machines", [[], [machine("i-1", "left9")]])
def test_a_controller_that_only_observes_adopts_nothing_and_does_not_say_that_there_is_nothing(
    controller: Controller,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    machines: list[dict[str, Any]],
) -> None:
    controller.told["pools"][0]["foreign_machines"] = machines
    controller.told["observe_only"] = {"text": "it met the same fault 3 times", "do": "see the log"}
    assert adopt(tmp_path, "--yes") == 1
    said = capsys.readouterr()
    assert "nothing is acted on: it met the same fault 3 times; see the log" in said.err
    assert said.out == ""
    assert controller.emitted == []


def test_before_every_pool_is_listed_it_is_not_said_that_there_is_nothing_to_adopt(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0].update(foreign_machines=[], listed_age=None)
    assert adopt(tmp_path) == 1
    said = capsys.readouterr()
    assert "these pools have not told what they have: here" in said.err
    assert "nothing to adopt" not in said.out


def test_the_machines_of_a_rival_come_with_a_word_on_who_that_is(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0]["foreign_machines"] = [machine("i-1", "k3f9+rival")]
    assert adopt(tmp_path, "--yes") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "k3f9 is known here, and another elasticd has gone on under its name since" in out


def test_without_foreign_machines_there_is_nothing_to_adopt(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.told["pools"][0]["foreign_machines"] = []
    assert adopt(tmp_path) == 0
    assert "there is nothing to adopt" in capsys.readouterr().out


def test_what_is_not_known_of_a_machine_is_a_question_mark(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = machine("i-1", "left9", price_micros=None, age=None, node_id=None)
    controller.told["pools"][0]["foreign_machines"] = [unknown]
    assert adopt(tmp_path, "--yes") == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.strip().startswith("i-1"))
    assert row.split()[2:] == ["?", "here/z/a10/spot", "?", "?", "?"]
    assert "1 of unknown price" in out
