"""`elasticd check`: exit codes, what it prints for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticd.cli import main

GOOD = """
cluster: test
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 2}]
models: [{name: m, source: "file:weights"}]
"""
HURTS = GOOD.replace('"file:weights"', '"file:weights", queue_limit: 0')


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "elasticd.yaml"
    path.write_text(GOOD)
    (tmp_path / "weights").mkdir()
    return path


def test_a_good_file_is_0(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(config)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{config}: fine; cluster test, models m, pools here (local)\n"
    assert told.err == ""


def test_a_bad_file_is_2_with_a_line_for_each_problem(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(GOOD + "gatway:\n  max_wait: 5\n")
    monkeypatch.chdir(config.parent)
    assert main(["check", "-c", "elasticd.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    head, *lines = told.err.splitlines()
    assert head == "elasticd: elasticd.yaml: 2 problems in the configuration"
    assert lines[0].startswith("  elasticd.yaml:6: gatway: unknown key; did you mean gateway?")
    assert lines[1].startswith("  elasticd.yaml:7: gateway.max_wait: a duration needs a unit")


def test_warnings_alone_are_1_with_a_line_for_each(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(HURTS)
    assert main(["check", "-c", str(config)]) == 1
    told = capsys.readouterr()
    assert "usable, with 1 warning; cluster test" in told.out
    assert told.err.startswith(f"warning: {config}:5: models[0].queue_limit: no request may wait")


def test_machines_are_told_the_same(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(HURTS)
    assert main(["check", "--json", "-c", str(config)]) == 1
    told = json.loads(capsys.readouterr().out)
    (warning,) = told["warnings"]
    assert (told["problems"], warning["line"], warning["path"]) == ([], 5, "models[0].queue_limit")

    config.write_text(HURTS + "colour: red\n")
    assert main(["check", "--json", "-c", str(config)]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["message"].startswith("unknown key; allowed here: cluster, ")
    assert (problem["file"], problem["line"], problem["path"]) == (str(config), 6, "colour")


def test_machines_are_told_of_a_file_that_is_no_yaml(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("a: [")
    assert main(["check", "--json", "-c", str(config)]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "not YAML" in problem["message"]


def test_show_prints_what_can_be_read_back(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--show", "-c", str(config)]) == 0
    shown = config.with_name("shown.yaml")
    shown.write_text(capsys.readouterr().out)
    assert main(["check", "--show", "-c", str(shown)]) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[1:] == shown.read_text().splitlines()[1:]
    assert "max_wait: 5m" in again


def test_show_for_machines(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--show", "--json", "-c", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["configuration"]["gateway"]["max_wait"] == "5m"
