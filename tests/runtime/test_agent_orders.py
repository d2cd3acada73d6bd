"""What the agent has taken happens, although the agent dies right after it."""

from __future__ import annotations

import asyncio
from typing import Any

from elasticd.agent_api.client import AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaOrder, ReplicaReport
from elasticd.runtime.agent_orders import AgentOrders
from tests.runtime.fakes import FakeAgent
from tests.runtime.virtual import LoopClock, virtual

ORDER = ReplicaOrder("r-1", 1, "n-1", "tiny", "hash", 1, "/m", "command", "key", "127.0.0.1")


def life(name: str, *replicas: str, complete: bool = True) -> ClusterState:
    shown = tuple(ReplicaReport(r, 1, "n-1", "tiny", "hash", "starting") for r in replicas)
    return ClusterState(name, 1, complete=complete, head_alive=True, replicas=shown)


async def orders_after(*states: ClusterState, agent: Any = None) -> list[tuple[str, Any]]:
    agent = agent or FakeAgent(*states)
    orders = AgentOrders(agent, LoopClock())
    await orders.state("", -1, 0.0)
    await orders.start(ORDER)
    for _ in states[1:]:
        await orders.state("", -1, 0.0)
    given: list[tuple[str, Any]] = agent.orders
    return given


@virtual
async def test_an_order_that_died_with_the_agent_is_given_to_its_next_life_once() -> None:
    given = await orders_after(life("a"), life("b"), life("b"), life("b"))
    assert given == [("start", ORDER), ("start", ORDER)]


@virtual
async def test_while_the_next_life_still_gathers_what_lives_nothing_is_given() -> None:
    given = await orders_after(life("a"), life("b", complete=False), life("b", complete=False))
    assert given == [("start", ORDER)]


@virtual
async def test_an_order_that_was_carried_out_is_not_given_again() -> None:
    assert len(await orders_after(life("a"), life("a", "r-1"), life("b"))) == 1
    assert len(await orders_after(life("a"), life("b", "r-1"), life("c"))) == 1


@virtual
async def test_the_same_life_is_trusted_to_do_what_it_took() -> None:
    assert len(await orders_after(life("a"), life("a"), life("a"))) == 1


@virtual
async def test_a_replica_that_was_told_to_stop_is_not_started_again() -> None:
    agent = FakeAgent(life("a"), life("b"))
    orders = AgentOrders(agent, LoopClock())
    await orders.state("", -1, 0.0)
    await orders.start(ORDER)
    await orders.stop("r-1", 1, 0.0)
    await orders.state("", -1, 0.0)
    assert [what for what, _ in agent.orders] == ["start", "stop"]


@virtual
async def test_an_order_that_the_core_has_given_up_long_ago_is_not_given_again() -> None:
    agent = FakeAgent(life("a"), life("b"))
    orders = AgentOrders(agent, LoopClock())
    await orders.state("", -1, 0.0)
    await orders.start(ORDER)
    await asyncio.sleep(3600.0)
    await orders.state("", -1, 0.0)
    assert len(agent.orders) == 1


@virtual
async def test_an_order_that_does_not_arrive_again_is_left_to_the_core() -> None:
    agent = FakeAgent(life("a"), life("b"))
    orders = AgentOrders(agent, LoopClock())
    await orders.state("", -1, 0.0)
    await orders.start(ORDER)
    agent._error = AgentUnreachable("away")
    assert (await orders.state("", -1, 0.0)).incarnation == "b"
