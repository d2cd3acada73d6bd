"""The boot script, run by a real shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd import __version__, bootstrap

PYTHON = """#!/bin/sh
case "$1" in
-V) echo "Python 3.9.2"; exit 0 ;;
-c) case "$2" in *version_info*) exit ${OLD:-0} ;; *) exit ${BARE:-0} ;; esac ;;
esac
printf '%s\\n' "$@" > "$OUT.argv"
printf '%s' "$ELASTICD_JOIN_TOKEN" > "$OUT.token"
printf '%s' "${ELASTICD_EXPECTED_GPUS-none}" > "$OUT.gpus"
printf '%s' "${ELASTICD_NOTICES-none} ${ELASTICD_METADATA_URL-none}" > "$OUT.notices"
"""


def _run(script: str, out: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "OUT": str(out), **more}
    return subprocess.run(["sh"], input=script, env=env, capture_output=True, text=True, timeout=20)


def test_it_becomes_the_watcher_whatever_is_in_the_words(tmp_path: Path) -> None:
    python = tmp_path / "py thon"
    python.write_text(PYTHON)
    python.chmod(0o755)
    script = bootstrap.render("n-1; $(id)", "http://a:1/'x", 'to"k$en`', str(python))
    done = _run(script, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    argv = (tmp_path / "out.argv").read_text().splitlines()
    assert argv == [
        *("-m", "elasticd.node.watcher"),
        *("--node-id", "n-1; $(id)", "--agent", "http://a:1/'x"),
    ]
    assert (tmp_path / "out.token").read_text() == 'to"k$en`'


def test_a_machine_without_that_python_says_so(tmp_path: Path) -> None:
    done = _run(bootstrap.render("n-1", "http://a", "t", "/no/python"), tmp_path / "out")
    assert done.returncode == 1
    assert "/no/python is not on this machine" in done.stderr


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("OLD", "is Python 3.9.2, and elasticd needs 3.11 or newer; set the pool's python"),
        ("BARE", f"has no elasticd; install elasticd {__version__} for it, or set the pool's"),
    ],
)
def test_a_python_that_cannot_run_the_watcher_is_one_clear_message(
    tmp_path: Path, fault: str, told: str
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    script = bootstrap.render("n-1", "http://a", "t", str(python))
    done = _run(script, tmp_path / "out", **{fault: "1"})
    assert done.returncode == 1
    assert told in done.stderr
    assert not (tmp_path / "out.argv").exists()


def test_the_python_of_elasticd_itself_is_good_enough(tmp_path: Path) -> None:
    done = _run(bootstrap.render("n-1", "http://a", "", sys.executable), tmp_path / "out")
    assert done.stderr == "elasticd node: ELASTICD_JOIN_TOKEN is not set; the boot script sets it\n"


def test_the_join_token_is_the_only_secret_and_never_an_argument(tmp_path: Path) -> None:
    script = bootstrap.render("n-1", "http://a", "the-token", "python3")
    assert script.count("the-token") == 1
    assert "the-token" not in json.dumps([x for x in script.splitlines() if x.startswith("exec")])


@pytest.mark.parametrize(("expected", "told"), [(None, "none"), (0, "0"), (8, "8")])
def test_the_watcher_is_told_how_many_gpus_to_wait_for(
    tmp_path: Path, expected: int | None, told: str
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    script = bootstrap.render("n-1", "http://a", "t", str(python), expected_gpus=expected)
    assert _run(script, tmp_path / "out").returncode == 0
    assert (tmp_path / "out.gpus").read_text() == told


@pytest.mark.parametrize(
    ("notices", "url", "told"),
    [
        ("", "", "none none"),
        ("ec2", "", "ec2 none"),
        ("gcp", "http://[::1]:80", "gcp http://[::1]:80"),
    ],
)
def test_the_watcher_is_told_whom_to_ask_for_notices(
    tmp_path: Path, notices: str, url: str, told: str
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    script = bootstrap.render(
        *("n-1", "http://a", "t", str(python)), notices=notices, metadata_url=url
    )
    assert _run(script, tmp_path / "out").returncode == 0
    assert (tmp_path / "out.notices").read_text() == told
