"""The suite itself: it provokes what it lists, cancels where it says, and takes any subject."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.interrupting import cancelled_at
from tests.conformance.subject import Trouble
from tests.conformance.subjects.fake_cloud import FAULTS

ROOT = Path(__file__).parents[2]


def test_every_trouble_is_provoked_at_one_subject_at_least() -> None:
    assert set(FAULTS) | {Trouble.UNREACHABLE} == set(Trouble)


async def test_a_call_is_cancelled_at_exactly_the_await_that_is_meant() -> None:
    for number in (1, 2, 3):
        passed: list[str] = []
        assert await cancelled_at(number, _three_awaits(passed))
        assert passed == [*["begun", "first", "second"][:number], "cancelled"]


async def test_a_call_with_fewer_awaits_is_let_pass_and_said_to_be_whole() -> None:
    passed: list[str] = []
    assert not await cancelled_at(4, _three_awaits(passed))
    assert passed == ["begun", "first", "second", "third"]


async def test_an_error_of_a_call_that_was_not_cancelled_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await cancelled_at(9, _broken())


async def _three_awaits(passed: list[str]) -> None:
    passed.append("begun")
    try:
        for name in ("first", "second", "third"):
            await asyncio.sleep(0)
            passed.append(name)
    except asyncio.CancelledError:
        passed.append("cancelled")
        raise


async def _broken() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


def test_a_subject_of_somebody_else_is_taken_by_its_import_path(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "from tests.conformance.subjects.local import LocalSubject\n\n\n"
        "class Theirs(LocalSubject):\n"
        "    def unusable(self):\n"
        "        return 'their vendor sleeps today'\n"
    )
    arguments = ["-q", "-p", "no:cacheprovider", "--subject", "theirs:Theirs"]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "tests/conformance/test_offerings.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    assert "2 skipped" in told.stdout
    assert "their vendor sleeps today" in told.stdout
