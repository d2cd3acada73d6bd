"""Loads that start together do not blow the host's memory. Virtual time."""

from __future__ import annotations

import threading

import pytest

from elasticd.node.host_memory import Memory
from elasticd.ray_side.memory_gate import MemoryGate, NotEnoughMemory

GIB = 1 << 30


class Machine:
    """A hundred GiB; `load` takes forty of them for thirty seconds from a moment on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loads: list[float] = []
        self.told: list[str] = []

    def memory(self) -> Memory:
        loading = sum(begun <= self.now < begun + 30.0 for begun in self.loads)
        return Memory(100 * GIB, (100 - 40 * loading) * GIB)

    def pause(self, stopping: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stopping.is_set()

    def load(self, deadline: float = 1000.0) -> None:
        gate = MemoryGate(self.memory, lambda: self.now, self.pause)
        assert gate.wait(40 * GIB, deadline, self.told.append, threading.Event())
        self.loads.append(self.now)


def test_four_loads_of_forty_percent_each_go_two_at_a_time() -> None:
    machine = Machine()
    for _ in range(4):
        machine.load()
    assert machine.loads == [0.0, 0.0, 30.0, 30.0]
    assert machine.told[0] == "waiting for host memory (20.0 GiB available, 40.0 GiB needed)"


def test_the_wait_is_bounded_and_says_what_was_missing() -> None:
    machine = Machine()
    machine.load()
    machine.load()
    with pytest.raises(NotEnoughMemory, match=r"20[.]0 GiB available, 40[.]0 GiB needed"):
        machine.load(deadline=10.0)
    assert machine.now == 10.0


def test_memory_that_nobody_can_tell_holds_nothing_up() -> None:
    gate = MemoryGate(memory=lambda: None)
    assert gate.wait(GIB, 0.0, lambda _: None, threading.Event())
