"""What leaves a command: nothing that moves a cursor, and no traceback where nobody takes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.cli import main
from elasticd.cli.output import print_json, printable
from elasticd.ops.text_table import Paint, Style
from tests.cli.fake_daemon import fake_daemon
from tests.cli.samples import sample_status

CLI = [sys.executable, "-m", "elasticd.cli"]


def shell(line: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """`$@` is the command."""
    return subprocess.run(
        ["bash", "-c", line, "-", *CLI, *argv], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "bad", ["\x1b[2J", "\x1b[31m", "\ud800", "\x1b]0;title\x07", "\x9b31m", "\r", "\x00", "\u202e"]
)
def test_no_control_character_of_others_reaches_the_terminal(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_daemon(tmp_path / "a.sock") as daemon:
        status = sample_status(cluster=f"c{bad}")
        for thing, key in (("nodes", "id"), ("nodes", "pool"), ("replicas", "id")):
            status[thing][0][key] = f"x{bad}"
        daemon.statuses = [status]
        daemon.refusal = (409, f"no{bad}thing")
        for argv in (["status"], ["status", "--why"], ["status", "--json"], ["drain", "n"]):
            main([*argv, "--socket", str(daemon.path)])
            shown = capsys.readouterr()
            assert bad not in shown.out + shown.err, argv


def test_json_says_exactly_what_it_is_given_and_shows_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"text": "a\x1b[31m \x9b \u202e \x7f \ud800 中"}
    print_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert "中" in shown
    assert not {"\x1b", "\x9b", "\u202e", "\x7f", "\ud800"} & set(shown)


def test_our_own_colours_stay() -> None:
    line = Paint(True)("all is well", Style.GOOD)
    assert printable(line, colours=True) == line
    assert "\x1b" not in printable(line)


@pytest.mark.parametrize("argv", [["keygen"], ["keygen", "--json"], ["--help"], ["doctor"]])
def test_a_closed_output_is_no_traceback(argv: list[str]) -> None:
    for line in ('"$@" >&-', '"$@" 2>&-', '"$@" >&- 2>&- <&-'):
        done = shell(line, *argv)
        assert done.returncode in (0, 1), (line, done)
        assert "Traceback" not in done.stderr


def test_with_a_closed_output_no_file_is_opened_in_its_place(tmp_path: Path) -> None:
    """Whatever were printed later would go into it."""
    script = (
        "import os, sys; from elasticd.cli import main; main(['keygen']);"
        "print(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), file=sys.stderr)"
    )
    line = f'{sys.executable} -c "$1" "$2" >&-'
    done = subprocess.run(
        ["bash", "-c", line, "-", script, str(tmp_path / "ledger")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert int(done.stderr) > 2


@pytest.mark.parametrize("argv", [["keygen"], ["keygen", "--json"]])
def test_a_full_disk_behind_the_output_is_one_message_and_1(argv: list[str]) -> None:
    done = shell('"$@" >/dev/full', *argv)
    assert done.returncode == 1
    assert done.stderr == "elasticd: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("argv", [["keygen"], ["--help"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(argv: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*CLI, *argv], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_while_it_is_still_loading_is_130_and_quiet(tmp_path: Path) -> None:
    """Stopped in the middle of its imports by one that takes its time."""
    package = tmp_path / "sitecustomize.py"
    package.write_text(
        "import builtins, os, signal\n"
        "load = builtins.__import__\n"
        "def slow(name, *more, **options):\n"
        "    if name == 'elasticd.cli.program':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *more, **options)\n"
        "builtins.__import__ = slow\n"
    )
    done = subprocess.run(
        [*CLI, "status"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    "argv",
    [["status", "--frobnicate", "--json"], ["scale", "m", "many", "--json"], ["what", "--json"]],
)
def test_wrong_usage_is_said_as_json_too(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    told = json.loads(capsys.readouterr().out)
    assert (bool(told["error"]), told["exit_code"]) == (True, 2)
