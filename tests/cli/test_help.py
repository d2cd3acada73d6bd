"""Help, and what is said to those who mistype."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.cli import main
from elasticd.cli.program import build_parser

OURS = ("status", "events", "drain", "undrain", "scale", "reload", "down", "drill", "doctor")


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


@pytest.mark.parametrize("command", OURS)
def test_the_help_of_a_command_says_what_it_does_an_example_and_its_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, command, "--help")
    assert code == 0
    assert f"examples:\n  elasticd {command}" in out
    assert "exit codes: 0" in out
    assert "$ELASTICD_CONFIG" in out or command == "drill"


def test_every_command_names_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    _, known = build_parser()
    for command in sorted(known - {"node"}):
        assert "exit codes:" in said(capsys, command, "--help")[1], command


@pytest.mark.parametrize(
    ("typed", "meant"), [("stauts", "status"), ("undrian", "undrain"), ("event", "events")]
)
def test_a_command_that_is_mistyped_names_the_nearest(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, typed)
    assert code == 2
    assert f"no command {typed!r}; did you mean `{meant}`" in err


def test_a_configuration_that_is_nowhere_is_said_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("elasticd.cli.common.DEFAULT_CONFIG", str(tmp_path / "no.yaml"))
    monkeypatch.delenv("ELASTICD_CONFIG", raising=False)
    assert main(["status"]) == 2
    assert "name the file with -c FILE or in $ELASTICD_CONFIG" in capsys.readouterr().err
    monkeypatch.setenv("ELASTICD_CONFIG", str(tmp_path / "typo.yaml"))
    assert main(["status"]) == 2
    assert f"no {tmp_path}/typo.yaml, which $ELASTICD_CONFIG names" in capsys.readouterr().err


@pytest.mark.parametrize("process", ["controller", "agent", "head", "gateway"])
def test_the_help_of_a_process_says_what_it_is_and_what_starts_all_of_them(
    process: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, process, "--help")
    assert "One of elasticd's processes: " in out
    assert "Use `elasticd run` for everything on one machine" in out
