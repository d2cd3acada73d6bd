"""The tiny model is made on first use, by a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.cli.demo_model import ensure_demo_model
from elasticd.demo.tiny_model import MARKER, version
from elasticd.errors import ElasticdError
from elasticd.node.process_tree import start_time
from elasticd.settings.load import Configuration, load
from tests.cli.waiting import until
from tests.settings.conftest import GOOD, PROVIDERS

DEMO = GOOD.replace("file:weights", "demo:tiny")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "elasticd"


def configured(tmp_path: Path, text: str = DEMO) -> Configuration:
    path = tmp_path / "elasticd.yaml"
    path.write_text(text)
    return load(path, PROVIDERS)


def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A stand-in for `python -m elasticd.demo.tiny_model DIR`; DIR is `$3`."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))


def test_it_is_made_on_first_use_and_then_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = json.dumps({"version": version()})
    maker(tmp_path, monkeypatch, f'mkdir -p "$3" && echo \'{marker}\' > "$3/{MARKER}"')
    said: list[str] = []
    config = configured(tmp_path)
    ensure_demo_model(config, said.append)
    ensure_demo_model(config, said.append)
    assert [line.split(" (")[0] for line in said] == [
        f"making the tiny model in {cache / 'tiny-model-v1'}",
        "the tiny model is made",
    ]
    assert config.model_source(config.settings.models[0]) == str(cache / "tiny-model-v1")


def test_a_maker_that_fails_is_told_in_its_own_words(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker(tmp_path, monkeypatch, "echo step 1; echo out of memory >&2; exit 4")
    with pytest.raises(ElasticdError, match=r"\(exit 4\):\nstep 1\nout of memory"):
        ensure_demo_model(configured(tmp_path), print)
    assert not cache.exists()


def test_without_a_demo_source_nothing_is_made(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker(tmp_path, monkeypatch, "exit 1")
    ensure_demo_model(configured(tmp_path, GOOD), print)
    assert not cache.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_maker_does_not_outlive_the_run_that_wanted_it(
    tmp_path: Path, cache: Path, number: signal.Signals
) -> None:
    configured(tmp_path)
    note = tmp_path / "pid"
    program = tmp_path / "python"
    program.write_text(
        f"#!/bin/sh\necho $$ > {note}.part && mv {note}.part {note}\nexec cat {cache.parent}/pipe\n"
    )
    program.chmod(0o755)
    cache.parent.mkdir()
    os.mkfifo(cache.parent / "pipe")
    run = (
        "import sys; from pathlib import Path; from elasticd.cli.demo_model import *;"
        "from elasticd.settings.load import load; from tests.settings.conftest import PROVIDERS;"
        "config = load(Path(sys.argv[1]), PROVIDERS);"
        "sys.executable = sys.argv[2]; ensure_demo_model(config, print)"
    )
    command = [sys.executable, "-c", run, str(tmp_path / "elasticd.yaml"), str(program)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as asking:
        until(note.exists, "the maker runs")
        maker_pid = int(note.read_text())
        assert start_time(maker_pid) is not None
        asking.send_signal(number)
    try:
        until(lambda: start_time(maker_pid) is None, "the maker ends")
    finally:
        if start_time(maker_pid) is not None:
            os.kill(maker_pid, signal.SIGKILL)
