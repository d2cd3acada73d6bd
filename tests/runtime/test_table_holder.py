"""The gateway gets the table that holds now, with its keys, as soon as it is another one."""

from __future__ import annotations

import asyncio

import pytest

from elasticd.runtime.table_holder import TableHolder
from tests.runtime.fakes import table
from tests.runtime.virtual import settle, virtual


def holder() -> TableHolder:
    return TableHolder(lambda replica_id, incarnation: f"key of {replica_id}/{incarnation}")


@virtual
async def test_a_table_is_given_at_once_to_who_has_another() -> None:
    tables = holder()
    tables.publish(table(3))
    for known in ((0, 0), (1, 2), (1, 4), (9, 3)):  # also one that only looks newer
        got = await tables.wait_for_other(*known, wait=0.0)
        assert got is not None
        assert got.version == 3
    assert asyncio.get_running_loop().time() == 0.0


@virtual
async def test_the_engines_keys_are_filled_in() -> None:
    tables = holder()
    tables.publish(table(1))
    assert tables.current is not None
    assert tables.current.models[0].endpoints[0].key == "key of replica-1/1"


@virtual
async def test_everyone_who_waits_gets_the_next_table() -> None:
    tables = holder()
    tables.publish(table(1))
    waiting = [asyncio.ensure_future(tables.wait_for_other(1, 1, 30.0)) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in waiting)
    tables.publish(table(2))
    await settle()
    assert [task.result().version for task in waiting] == [2, 2, 2]


@pytest.mark.parametrize("published", [True, False])
@virtual
async def test_without_another_table_the_wait_ends_in_time(published: bool) -> None:
    tables = holder()
    if published:
        tables.publish(table(1))
    assert await tables.wait_for_other(1, 1, 5.0) is None
    assert asyncio.get_running_loop().time() == 5.0


@virtual
async def test_closing_answers_who_waits() -> None:
    tables = holder()
    waiting = asyncio.ensure_future(tables.wait_for_other(1, 1, 60.0))
    await settle()
    tables.close()
    assert await waiting is None
    assert asyncio.get_running_loop().time() == 0.0
