"""The same fault three times ends all acting; health, a person or a new version begins anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elasticd.runtime import fault_memory
from elasticd.runtime.fault_memory import FaultMemory, signature_of
from elasticd.runtime.inbox import Inbox


def fault(kind: type[Exception] = ZeroDivisionError, message: str = "a bug") -> Exception:
    return kind(message)


def test_three_times_the_same_fault_are_remembered_over_lives(tmp_path: Path) -> None:
    for times in (1, 2, 3):
        memory = FaultMemory(tmp_path)
        assert not memory.only_observe
        memory.note(fault(message=f"of node {times}"), 100.0 + times)
    memory = FaultMemory(tmp_path)
    assert memory.only_observe
    repeated = memory.repeated
    assert repeated is not None
    assert (repeated.times, repeated.first_at, repeated.last_at) == (3, 101.0, 103.0)
    assert "of node 3" in repeated.message
    assert (tmp_path / "faults.json").stat().st_mode & 0o777 == 0o600


def test_different_faults_are_counted_each_for_itself(tmp_path: Path) -> None:
    memory = FaultMemory(tmp_path)
    for _ in range(2):
        memory.note(fault(KeyError), 1.0)
        memory.note(fault(ValueError), 1.0)
    assert not memory.only_observe
    memory.note(fault(KeyError), 2.0)
    assert memory.only_observe


def test_a_person_gets_one_more_try_and_the_same_fault_ends_it_at_once(tmp_path: Path) -> None:
    memory = FaultMemory(tmp_path)
    for _ in range(3):
        memory.note(fault(), 1.0)
    memory.allow_one_more_try()
    memory = FaultMemory(tmp_path)
    assert not memory.only_observe
    assert not FaultMemory(tmp_path).only_observe  # also after a kill in the middle of the try
    memory.note(fault(), 2.0)
    assert memory.only_observe
    assert FaultMemory(tmp_path).only_observe


def test_a_healthy_while_and_another_version_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = FaultMemory(tmp_path)
    for _ in range(3):
        memory.note(fault(), 1.0)
    with monkeypatch.context() as newer:
        newer.setattr(fault_memory, "__version__", "99.0")
        assert not FaultMemory(tmp_path).only_observe
    assert FaultMemory(tmp_path).only_observe
    memory.clear()
    assert not memory.only_observe
    assert FaultMemory(tmp_path).repeated is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 1, "version": "VERSION", "one_more_try": false, "faults": [{}]}',
        b'{"format": 1, "version": "VERSION", "one_more_try": false, "faults": 7}',
        b'{"format": 1, "version": "VERSION", "one_more_try": false, "faults": [{"signature": "x",'
        b' "message": "y", "times": "many", "first_at": 1, "last_at": 2}]}',
    ],
)
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "faults.json"
    file.write_bytes(content.replace(b"VERSION", fault_memory.__version__.encode()))
    memory = FaultMemory(tmp_path)
    assert memory.repeated is None
    memory.note(fault(), 1.0)
    assert json.loads(file.read_bytes())["faults"][0]["times"] == 1


def test_a_disk_that_takes_nothing_still_counts_in_this_life(tmp_path: Path) -> None:
    memory = FaultMemory(tmp_path / "missing")
    for _ in range(3):
        memory.note(fault(), 1.0)
    assert memory.only_observe
    memory.clear()
    assert not memory.only_observe


def test_a_fault_is_known_by_its_root_and_the_innermost_place_of_ours() -> None:
    def once(number: int) -> Exception:
        inbox = Inbox()
        inbox._events = None  # type: ignore[assignment]
        try:
            try:
                inbox.take_now()
            except Exception as inner:
                raise ExceptionGroup("several", [inner]) from None
        except Exception as group:
            outer = RuntimeError(f"wrapped {number}")
            outer.__cause__ = group
            return outer
        raise AssertionError

    assert signature_of(once(1)) == signature_of(once(2))
    assert signature_of(once(1)) == "TypeError in runtime/inbox.py Inbox.take_now"
    assert signature_of(fault()) == "ZeroDivisionError"


@pytest.mark.parametrize("place", ["pipe", "device", "infinite", "long", "negative"])
def test_what_none_of_ours_wrote_is_neither_waited_for_nor_believed(
    place: str, tmp_path: Path
) -> None:
    path = tmp_path / "faults.json"
    for _ in range(3):
        FaultMemory(tmp_path).note(ZeroDivisionError("a bug"), 1.0)
    good = path.read_text()
    path.unlink()
    if place == "pipe":
        os.mkfifo(path)
    elif place == "device":
        path.symlink_to("/dev/zero")
    elif place == "long":
        path.write_text(good + " " * 10_000_000)
    else:
        path.write_text(good.replace("1.0", {"infinite": "1e999", "negative": "-1.0"}[place]))
    assert FaultMemory(tmp_path).repeated is None
