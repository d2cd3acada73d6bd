"""Quiet steps are packed exactly and read again, or said to be damaged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.fleet import Row
from elasticd.runtime.journal_fold import Unreadable
from elasticd.runtime.journal_quiet import Began, Gap, Pack, QuietStep, pack, read_quiet, unpacked

_LIFE = Began("ledger", 3, (Row("node", "n", {"a": 1.5, "ü": None}), Row("down", "f", {})))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_every_time_is_read_to_the_last_bit(times: list[float]) -> None:
    collected = Pack()
    for at in times:
        collected.step(at, [0, {"type": "x"}])
    read = list(read_quiet(collected.take()))
    assert read == [QuietStep(at, (0, {"type": "x"})) for at in times]
    signs = [math.copysign(1.0, line.at) for line in read if isinstance(line, QuietStep)]
    assert signs == [math.copysign(1.0, at) for at in times]


def test_beginnings_and_gaps_stand_between_the_steps_in_order() -> None:
    collected = Pack()
    collected.began(_LIFE)
    collected.step(5.0, [])
    collected.gap(Gap(5.0, 9.5))
    collected.step(10.0, [1])
    assert list(read_quiet(collected.take())) == [
        _LIFE,
        QuietStep(5.0, ()),
        Gap(5.0, 9.5),
        QuietStep(10.0, (1,)),
    ]


def test_a_pack_that_was_taken_begins_anew_and_nothing_is_no_bytes() -> None:
    collected = Pack()
    collected.step(5.0, [])
    assert (collected.since, collected.size > 0) == (5.0, True)
    collected.take()
    assert (collected.since, collected.size, collected.take()) == (None, 0, b"")
    collected.step(7.0, [])
    assert list(read_quiet(collected.take())) == [QuietStep(7.0, ())]
    assert list(read_quiet(b"")) == []


def test_an_idle_day_takes_a_few_bytes_a_step() -> None:
    """The clock's jitter cannot be packed; everything else can."""
    collected, steps, at = Pack(), 1000, 1_700_000_000.0
    for n in range(steps):
        at += 0.5 + (n * 7919 % 1000) / 1e6
        collected.step(at, [0, 1])
    assert len(collected.take()) < 5 * steps


_WHOLE = pack(['[1,{"type":"x"}]'] * 50)


@pytest.mark.parametrize(
    "data",
    [
        b"no zlib",
        _WHOLE[:-6],
        pack(["[1"]),
        pack(["[]"]),
        pack(['["x"]']),
        pack(["{}"]),
        pack(["7"]),
        pack(['{"gap":[1]}']),
        pack(['{"began":{"epoch":1}}']),
        pack([f"[{2**70}]"]),
        pack(["[1]", ""]),
    ],
)
def test_damage_is_said_and_never_read_as_something(data: bytes) -> None:
    with pytest.raises(Unreadable):
        list(read_quiet(data))


def test_a_pack_that_claims_to_be_huge_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.runtime.journal_quiet.LARGEST", 1000)
    with pytest.raises(Unreadable):
        unpacked(pack(["x" * 2000]))
