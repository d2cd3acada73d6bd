"""What the proof is worth: with a fault put into our own code, the promise it breaks is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from elasticd.core.events import DownRequested, DrainRequested, ScaleHeld
from elasticd.core.fleet import Row
from elasticd.core.state import State
from elasticd.runtime.ledger import JournalEntry
from elasticd_providers.fake.faults import CallFault
from elasticd_providers.fake.launching import Launcher
from tests.model.books import LEDGER, STRAY_WITHIN, Broken
from tests.model.catalog import caps, fleet
from tests.model.life import Life
from tests.model.world import World, serve


def node_of(world: World) -> str:
    identity = world.books.ours()[0].identity
    assert identity is not None
    return identity.node_id


def test_all_is_well_in_a_world_without_faults(world: World) -> None:
    serve(world).run(300.0)
    world.say(DownRequested("test"))
    assert world.until(lambda: not world.books.ours(), 60.0, "nothing is left") > 0.0


def test_a_launch_before_its_row_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(self: Life, at: float, rows: Sequence[Row], e: Sequence[JournalEntry]) -> None:
        """Says that it is written and writes nothing."""

    monkeypatch.setattr(Life, "commit", later)
    world.keep_up()
    with pytest.raises(Broken, match="asked for and not written down"):
        world.run(30.0)


def test_a_machine_that_counts_as_gone_too_early(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.core.reaper._ended", lambda node, began: True)
    monkeypatch.setattr("elasticd.core.reaper._absence_counts", lambda *args: True)
    serve(world).accounts["blue"].suffer(terminate_ignored=60.0, list_lag=100.0)
    world.say(DrainRequested(node_of(world), 0.0, "test"))
    with pytest.raises(Broken, match="counts as gone"):
        world.run(60.0)


def test_a_second_machine_for_a_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_need(self: Launcher, attempt: Any, age: float) -> None:
        """Asks again at once, whatever is known."""

    monkeypatch.setattr(Launcher, "_may_ask_again", no_need)
    world.accounts["blue"].suffer(lookup_lag=8.0, list_lag=25.0)
    world.accounts["blue"].mislead(CallFault(operation="create", effect="lost"))
    world.keep_up()
    with pytest.raises(Broken, match="was made beside"):
        world.run(60.0)


def test_a_machine_that_nobody_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.core.deadlines.ask_orphans", lambda *args: None)
    serve(world).plant("blue", LEDGER)
    with pytest.raises(Broken, match=r"stray.*nobody stands for it"):
        world.run(STRAY_WITHIN + 60.0)


def test_a_machine_of_somebody_else_that_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "is_ours", lambda self, ledger_id: True)
    serve(world).plant("blue", "another-ledger")
    with pytest.raises(Broken, match="not that pool's"):
        world.run(120.0)


def test_more_machines_than_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.core.fleet.Fleet.paid_in", lambda self, pool: 0)
    world.keep_up()
    world.say(ScaleHeld("m", 3, None, "test"))
    with pytest.raises(Broken, match="2 were allowed"):
        world.run(60.0)


def test_a_rent_above_the_cap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.core.purchase.affordable", lambda s, p, o: (tuple(o), ""))
    world.reload(fleet(budget=caps(500_000)))
    world.keep_up()
    world.say(ScaleHeld("m", 2, None, "test"))
    with pytest.raises(Broken, match="the cap was 500000"):
        world.run(60.0)


def test_a_row_that_is_not_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Life.commit

    async def without(
        self: Life, at: float, rows: Sequence[Row], entries: Sequence[JournalEntry]
    ) -> None:
        await whole(self, at, [row for row in rows if row.kind != "replica"], entries)

    monkeypatch.setattr(Life, "commit", without)
    world.keep_up()
    with pytest.raises(Broken, match="not what the core remembers"):
        world.run(30.0)


def test_a_machine_that_serves_and_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.core.reaper._doubtful", lambda *args: False)
    serve(world).run(60.0)
    world.accounts["blue"].mislead(CallFault(operation="list", effect="empty", times=None))
    with pytest.raises(Broken, match="is paid for and serves"):
        world.run(60.0)


def test_a_fault_of_ours_that_is_only_logged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.runtime.performer.encode", lambda value: 1 / 0)
    world.keep_up()
    with pytest.raises(Broken, match="a fault of ours"):
        world.run(30.0)
