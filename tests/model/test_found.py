"""What the proof has found once: each is told with the shortest story that shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.events import (
    DownRequested,
    DrainRequested,
    ScaleHeld,
    ServeRequested,
)
from elasticd.core.lifecycle import NODE_PAID
from elasticd_providers.fake.faults import CallFault
from tests.core import world as by_hand
from tests.model.around import Setting
from tests.model.catalog import POOLS, caps, fleet, models
from tests.model.world import World, serve

THEIRS = "another-ledger"


def left(world: World) -> list[str]:
    """Nodes that may still cost money."""
    assert world.life is not None
    return [node.id for node in world.life.core.state.fleet.nodes(NODE_PAID)]


def test_what_was_decided_is_not_rented_beside_another_ledgers_machines(world: World) -> None:
    serve(world).fill_disk(60.0)
    [mine] = world.books.ours()
    assert mine.identity is not None
    world.say(DrainRequested(mine.identity.node_id, 0.0, "test"))
    for name in POOLS:
        world.plant(name, THEIRS, f"n-theirs-{name}")
    world.run(200.0)  # what is asked for beside them would be told
    assert world.books.ours() == []
    for name in POOLS:
        [known] = world.foreign_in(name)
        known.machine.ended_at = world.now
    world.until(lambda: len(world.books.ours()) == 1, 120.0, "what is wanted is rented again")


def test_a_machine_adopted_while_all_is_given_back_counts_at_once(world: World) -> None:
    serve(world).say(DownRequested("test"))
    world.run(60.0)
    world.plant("blue", THEIRS, "n-theirs")
    world.until(
        lambda: world.life is not None and world.life.core.state.pools["blue"].foreign != "",
        60.0,
        "it is seen",
    )
    world.adopt(THEIRS)
    world.say(ScaleHeld("m", 3, None, "test"))
    world.say(ServeRequested("test"))
    world.run(5.0)  # more than the pool may have would be told
    assert len(world.books.of("blue")) == 2


@pytest.mark.parametrize("effect", ["delayed", "hang_after"])
def test_a_node_whose_launch_was_answered_last_ends_as_soon_as_any_other(
    world: World, effect: str
) -> None:
    fault = CallFault(operation="create", effect=effect, seconds=15.0)
    world.accounts["blue"].mislead(fault)
    serve(world).say(DownRequested("test"))
    world.until(lambda: not left(world), 60.0, "nothing is left")


def test_a_machine_rented_before_a_reload_does_not_stop_what_the_reload_was_for(
    world: World,
) -> None:
    world.new_machines_differ = True
    world.keep_up()
    world.until(lambda: len(world.books.ours()) == 1, 5.0, "a machine with other versions")
    world.new_machines_differ = False
    assert world.reload(fleet(wanted=models("two"))) == ""
    world.until(lambda: len(world.cluster.joined()) == 1, 60.0, "one that fits is rented")


def test_the_cheapest_offering_is_found_across_currencies() -> None:
    world = World(Setting(cheap_yuan=True))
    try:
        [mine] = serve(world).books.ours()
    finally:
        world.close()
    assert (mine.pool, mine.machine.currency) == ("green", "CNY")


def test_what_is_asked_for_in_two_currencies_counts_at_the_dearer_one() -> None:
    dollars, yuan = by_hand.offering(price=0.9), by_hand.offering(zone="b", price=2.6)
    core = by_hand.World(offerings=[dollars, replace(yuan, currency="CNY")])
    core.spec = replace(core.spec, budget=caps(5_000_000))
    core.start()
    [node] = core.core.status(core.now)["nodes"]
    assert (node["phase"], core.core.status(core.now)["spend"]["per_hour"]) == (
        "requested",
        900_000,
    )
