"""What people are told of the ledger's file: what was done to it, and that its copy grows old."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.ops.status_problems import problems, remarks


def status(**ledger: Any) -> dict[str, Any]:
    return {"controller": {"ledger": {"copy_age": 40.0, "copy_error": "", "told": [], **ledger}}}


def test_a_ledger_with_a_copy_is_nothing_to_tell() -> None:
    assert list(remarks(status())) == []


@pytest.mark.parametrize(
    ("copy_age", "told"), [(None, "there is none"), (7200.0, "the last one is 2h")]
)
def test_a_copy_that_fails_is_a_remark_and_no_problem(copy_age: float | None, told: str) -> None:
    shown = status(copy_error="too little room at /state", copy_age=copy_age)
    [remark] = remarks(shown)
    assert remark.startswith("no new copy of the ledger: too little room at /state; ")
    assert told in remark
    assert "no new copy" not in " ".join(problems(shown))


def test_what_was_done_to_the_file_is_told_until_the_next_start() -> None:
    assert list(remarks(status(told=["brought to schema 2"]))) == ["brought to schema 2"]


def test_a_disk_that_takes_nothing_is_told_with_the_file_and_what_to_do() -> None:
    shown = status(path="/state/ledger.sqlite")
    shown["controller"]["ledger_error"] = "database or disk is full"
    first = next(iter(problems(shown)))
    assert "/state/ledger.sqlite cannot be written (database or disk is full)" in first
    assert "make room on its disk" in first
