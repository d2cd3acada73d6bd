"""Chinese names, paths and comments, with a byte order mark, under a C locale: all of it works."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from elasticd.settings.load import load
from tests.cli.waiting import until

CHINESE = """\
# 配置：中文注释
cluster: test
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 2, zones: [上海]}]
models:
  - {name: 通义千问, source: "file:模型", queue_limit: 0}   # 别名
"""
LOCALES = [
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "C.UTF-8"},
]


def _environ(locale: Mapping[str, str]) -> dict[str, str]:
    """Ours, with nothing of our own locale."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    return {**kept, **locale}


def _run(folder: Path, locale: Mapping[str, str], *argv: str, expected: int) -> tuple[str, str]:
    """One command with its output in files, as bytes of UTF-8."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        command = [sys.executable, "-m", "elasticd.cli", *argv]
        done = subprocess.run(
            command, cwd=folder, env=_environ(locale), stdout=out, stderr=err, check=False
        )
    told = (folder / "err").read_bytes().decode()
    assert done.returncode == expected, told
    return (folder / "out").read_bytes().decode(), told


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    (tmp_path / "模型").mkdir()
    (tmp_path / "配置.yaml").write_bytes(b"\xef\xbb\xbf" + CHINESE.encode())
    return tmp_path


@pytest.mark.parametrize("locale", LOCALES)
def test_chinese_text_with_a_bom_is_read_and_told_under_any_locale(
    chinese: Path, locale: dict[str, str]
) -> None:
    out, told = _run(chinese, locale, "check", "-c", "配置.yaml", expected=1)
    assert out.startswith("配置.yaml: usable, with 1 warning; cluster test, models 通义千问")
    assert told.startswith("warning: 配置.yaml:6: models[0].queue_limit:")
    shown, _ = _run(chinese, locale, "check", "--show", "-c", "配置.yaml", expected=1)
    assert "- 上海" in shown
    assert f"file:{chinese / '模型'}" in shown


@pytest.mark.parametrize("locale", LOCALES)
def test_a_problem_in_chinese_text_is_told_under_any_locale(
    chinese: Path, locale: dict[str, str]
) -> None:
    text = CHINESE.replace("queue_limit: 0", "pools: [上海池]")
    (chinese / "配置.yaml").write_text(text, encoding="utf-8-sig")
    _, told = _run(chinese, locale, "check", "-c", "配置.yaml", expected=2)
    assert "配置.yaml:6: models[0].pools[0]: no pool is called '上海池'; allowed: here" in told


@pytest.mark.parametrize("locale", LOCALES)
def test_status_finds_a_socket_with_a_chinese_name_under_any_locale(
    chinese: Path, locale: dict[str, str]
) -> None:
    text = CHINESE.replace("state_dir: state", "state_dir: state\nadmin: {socket: 套接字.sock}")
    (chinese / "配置.yaml").write_text(text, encoding="utf-8-sig")
    _, told = _run(chinese, locale, "status", "-c", "配置.yaml", expected=3)
    assert "套接字.sock" in told


def test_an_old_eight_bit_locale_ends_no_command(chinese: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "elasticd.cli", "check", "-c", "配置.yaml"]
    done = subprocess.run(command, cwd=chinese, env=environ, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert done.stdout.isascii()


def test_the_shown_configuration_of_a_chinese_file_reads_back(chinese: Path) -> None:
    shown, _ = _run(chinese, LOCALES[0], "check", "--show", "-c", "配置.yaml", expected=1)
    again = chinese / "wieder.yaml"
    again.write_text(shown, encoding="utf-8")
    assert load(again).settings.models[0].name == "通义千问"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_daemon_serves_and_logs_chinese_names_under_a_c_locale(chinese: Path) -> None:
    config = chinese / "配置.yaml"
    sleeping = CHINESE.replace("queue_limit: 0", "start_timeout: 1m, scaling: {min_replicas: 0}")
    listen = f"admin: {{listen: 127.0.0.1:{_free_port()}}}\n"
    config.write_text(sleeping + listen, encoding="utf-8-sig")
    command = [sys.executable, "-m", "elasticd.cli", "controller", "-c", "配置.yaml"]
    with (
        (chinese / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=chinese, env=_environ({"LC_ALL": "C"}), stdout=log, stderr=log
        ) as daemon,
    ):
        try:
            until((chinese / "state" / "run" / "admin.sock").exists, "the controller listens")
            # Without an agent the fleet is degraded, which is exit code 1; nothing is wanted of it.
            until(lambda: "通义千问" in _status(chinese), "status shows the model")
        finally:
            daemon.terminate()
    assert daemon.returncode == 0, (chinese / "log").read_text()
    assert "Traceback" not in (chinese / "log").read_bytes().decode()


def _status(folder: Path) -> str:
    """What `elasticd status` writes into a file."""
    with (folder / "status").open("wb") as out:
        command = [sys.executable, "-m", "elasticd.cli", "status", "-c", "配置.yaml"]
        done = subprocess.run(
            command, cwd=folder, env=_environ({"LC_ALL": "C"}), stdout=out, check=False
        )
    assert done.returncode in (0, 1)
    return (folder / "status").read_bytes().decode()


def test_run_tells_its_story_under_a_c_locale(chinese: Path) -> None:
    text = CHINESE.replace("provider: local", "provider: cloud").replace(
        "zones: [上海]", "region: 上海"
    )
    (chinese / "elasticd.yaml").write_text(text, encoding="utf-8-sig")
    (chinese / "machines").write_text("")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.cli.stub_run", str(chinese), "controller"]
    with (chinese / "said").open("wb") as said:
        run = subprocess.Popen(
            command, cwd=root, env=_environ({"LC_ALL": "C"}), stdout=said, stderr=said
        )
    try:
        until((chinese / "controller.pids").exists, "the controller is started")
    finally:
        run.terminate()
    assert run.wait(20) == 0, (chinese / "said").read_text()
    assert "Traceback" not in (chinese / "said").read_text()
