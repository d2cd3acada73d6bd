"""Logs are readable by people in a terminal and by programs everywhere else."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog

from elasticd.errors import UsageError
from elasticd.ops.telemetry import set_up_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.captureWarnings(False)
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


def test_outside_a_terminal_each_line_is_one_json_object() -> None:
    out = io.StringIO()
    set_up_logs("controller", stream=out)
    structlog.get_logger().info("tick", why=["机器 ready"], n=3)
    logging.getLogger("aiohttp.server").error("broken %s", "pipe")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    when = datetime.fromisoformat(first.pop("timestamp"))
    assert abs((datetime.now(UTC) - when).total_seconds()) < 60
    assert first == {
        "event": "tick",
        "why": ["机器 ready"],
        "n": 3,
        "level": "info",
        "service": "controller",
    }
    assert (second["event"], second["level"]) == ("broken pipe", "error")
    assert second["service"] == "controller"
    assert "机器" in out.getvalue()


def test_in_a_terminal_lines_are_for_people() -> None:
    out = Terminal()
    set_up_logs("gateway", stream=out)
    structlog.get_logger().info("tick", n=3)
    [line] = out.getvalue().splitlines()
    assert "tick" in line
    assert not line.startswith("{")


def test_the_level_is_obeyed_and_a_wrong_one_refused() -> None:
    out = io.StringIO()
    set_up_logs("agent", level="warning", stream=out)
    structlog.get_logger().info("quiet")
    logging.getLogger("x").info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]
    with pytest.raises(UsageError, match="'loud': allowed are debug, info, warning, error"):
        set_up_logs("agent", level="loud")


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_a_traceback_shows_where_but_no_values(out: io.StringIO) -> None:
    set_up_logs("controller", stream=out)
    api_key = "sk-very-secret"
    try:
        _ = {}["missing"]
    except KeyError:
        structlog.get_logger().exception("fault")
    assert api_key
    assert "KeyError: 'missing'" in out.getvalue()
    assert "sk-very-secret" not in out.getvalue().replace('api_key = "sk-very-secret"', "")


def test_bytes_are_utf8_whatever_the_locale() -> None:
    program = (
        "import structlog; from elasticd.ops.telemetry import set_up_logs;"
        "set_up_logs('x'); structlog.get_logger().info('\\u8282\\u70b9', odd='\\ud800')"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert "节点" in done.stderr.decode("utf-8")
