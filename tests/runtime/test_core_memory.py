"""A core that was remembered goes on as the one that was not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.core.actions import Plan
from elasticd.core.decide import Core
from elasticd.core.events import Event, NoticeArrived, ScaleHeld
from elasticd.runtime.core_memory import NotMemory, core_of, remembered
from tests.core.world import World, model


class Told(World):
    """Keeps what its core was told last."""

    told: tuple[Event, ...] = ()

    def step(self, *events: Event) -> Plan:
        self.told = events
        return super().step(*events)


def test_it_decides_the_same_from_any_moment_on() -> None:
    """Every step, from every tenth moment of a life."""
    world = Told([model(max_replicas=3)])
    twins: list[Core] = []
    world.start()
    for n in range(120):
        if n % 10 == 0:
            twins.append(core_of(json.loads(json.dumps(remembered(world.core)))))
        events: list[Event] = [world.demand(n % 7, n % 5)]
        if n == 40:
            events.append(ScaleHeld("m", 3, 30.0, "test"))
        if n == 60:
            events.append(NoticeArrived("x", "spot", min(world.instances), "interruption", 20.0))
        world.settle(*events)
        for twin in twins:
            assert twin.step(world.now, world.told) == world.log[-1]
    assert len(twins) == 12


def test_what_is_shared_stays_shared_and_what_is_kept_is_all() -> None:
    world = World()
    world.start()
    world.settle(rounds=3)
    copy = core_of(remembered(world.core))
    assert copy._keeper._state is copy._state
    assert remembered(copy) == remembered(world.core)
    assert copy.status(world.now) == world.core.status(world.now)


@pytest.mark.parametrize("value", [object(), len, lambda: 0, int, b"x", [open]])
def test_what_is_not_the_cores_is_not_kept(value: Any) -> None:
    with pytest.raises(NotMemory):
        remembered(value)


@pytest.mark.parametrize(
    "memory",
    [
        None,
        [],
        ["o", "os:system", {}],
        ["o", "elasticd.core.decide:deque", {}],
        ["o", "elasticd.core.decide:status", {}],
        ["o", "elasticd.core.no_such:X", {}],
        ["o", "elasticd.provider:Offering", {}],
        ["o", "elasticd.core.decide:Core", {"no": ["r", 9]}],
        ["m", "text", "format"],
        ["m", ["l"], "append"],
        ["e", "elasticd.provider:Market", "gift"],
        ["e", "elasticd.provider:Offering", 1],
        ["z"],
    ],
)
def test_what_is_no_memory_is_refused(memory: Any) -> None:
    with pytest.raises(NotMemory):
        core_of(memory)
