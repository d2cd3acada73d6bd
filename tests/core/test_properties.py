"""The short form of the proof: every order of events keeps the core's invariants."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, settings

from elasticd.core.actions import PublishTable
from elasticd.routing_table import table_from_json, table_to_json
from tests.core.machine import AnyOrder
from tests.core.machine_base import fresh_world

AnyOrder.TestCase.settings = settings(
    max_examples=60,
    derandomize=True,  # `make prove` explores
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrder = AnyOrder.TestCase


def test_every_published_table_can_be_read_back() -> None:
    world = fresh_world()
    world.start()
    world.settle(rounds=5)
    tables = world.log and [
        a.table for plan in world.log for a in plan.actions if isinstance(a, PublishTable)
    ]
    assert len(tables) >= 2
    for table in tables:
        told = json.loads(json.dumps(table_to_json(table)))
        assert table_from_json(told) == table
        for route in told["models"]:
            del route["spec_hash"], route["continues"]
        assert all(m.spec_hash == "" for m in table_from_json(told).models), "an older controller"
