"""Each action ends in exactly one event, whatever the other side does."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.core.actions import LaunchNode, StartReplica, TerminateNode
from elasticd.core.events import (
    LaunchAnswered,
    LaunchFailed,
    ReplicaOrderFailed,
    ReplicaOrderTaken,
    TerminateAnswered,
    TerminateFailed,
)
from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    Instance,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    NoCapacity,
    PriceTooHigh,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Rejected,
    Unavailable,
)
from elasticd.runtime.orders import EnginePorts, OrderMaker
from elasticd.runtime.performer import Identity, Performer
from tests.runtime.fakes import (
    INSTANCE,
    LAUNCH,
    OFFERING,
    START,
    STOP,
    TERMINATE,
    FakeAgent,
    FakeProvider,
    fleet_spec,
    hang,
)
from tests.runtime.virtual import virtual


def performer(provider: FakeProvider | None = None, agent: Any = None) -> Performer:
    orders = OrderMaker(lambda r, i: f"key of {r}/{i}", EnginePorts(100, 200))
    orders.learn(fleet_spec())
    return Performer(
        Identity("test", "ledger"),
        {"lab": provider or FakeProvider()},
        agent or FakeAgent(),
        orders,
        lambda pool, node_id, gpus: f"boot {node_id} of {pool} with {gpus}",
        agent_timeout=15.0,
    )


@virtual
async def test_a_launch_asks_for_the_node_by_our_id_with_its_boot_script() -> None:
    provider = FakeProvider()
    event = await performer(provider).perform(LAUNCH)
    assert event == LaunchAnswered("node-1", INSTANCE)
    wanted = LaunchRequest("node-1", "test", "ledger", (OFFERING,), "boot node-1 of lab with 1")
    assert provider.asked == [("launch", wanted)]


@pytest.mark.parametrize(
    ("error", "definite", "after"),
    [
        (NoCapacity("m"), True, None),
        (QuotaExceeded("m"), True, None),
        (PriceTooHigh("m"), True, None),
        (AuthFailed("m"), True, None),
        (BillingBlocked("m"), True, None),
        (Rejected("m"), True, None),
        (RateLimited("m", 7.0), False, 7.0),
        (RateLimited("m"), False, None),
        (Unavailable("m"), False, None),
        (InstanceNotFound("m"), True, None),
        (ProviderError("m"), False, None),
        (RuntimeError("m"), False, None),
        (TimeoutError("m"), False, None),
    ],
)
@virtual
async def test_the_error_class_says_whether_a_machine_may_still_come(
    error: Exception, definite: bool, after: float | None
) -> None:
    event = await performer(FakeProvider(launch=error)).perform(LAUNCH)
    assert event == LaunchFailed("node-1", type(error).__name__, "m", definite, after)


@virtual
async def test_an_instance_that_cannot_be_recorded_is_no_clear_answer() -> None:
    odd = Instance("i-1", "node-1", "ledger", InstanceState.RUNNING, launched_at=float("nan"))
    event = await performer(FakeProvider(launch=odd)).perform(LAUNCH)
    assert isinstance(event, LaunchFailed)
    assert not event.definite


@virtual
async def test_ending_a_machine_is_done_only_when_it_is_not_found() -> None:
    under_way = await performer().perform(TERMINATE)
    done = await performer(FakeProvider(terminate=InstanceNotFound("i-1"))).perform(TERMINATE)
    assert under_way == TerminateAnswered("node-1", "i-1", gone=False)
    assert done == TerminateAnswered("node-1", "i-1", gone=True)


@pytest.mark.parametrize("error", [AuthFailed("m"), Unavailable("m"), KeyError("m")])
@virtual
async def test_a_machine_whose_ending_failed_is_not_called_gone(error: Exception) -> None:
    event = await performer(FakeProvider(terminate=error)).perform(TERMINATE)
    assert event == TerminateFailed("node-1", "i-1", type(error).__name__, str(error))


@virtual
async def test_a_pool_that_is_not_configured_refuses_to_buy_and_keeps_what_is_there() -> None:
    launch = await performer().perform(LaunchNode("node-1", "old", (OFFERING,)))
    end = await performer().perform(TerminateNode("node-1", "old", "i-1"))
    assert isinstance(launch, LaunchFailed)
    assert launch.definite
    assert isinstance(end, TerminateFailed)
    assert "'old' is not configured" in end.message


@virtual
async def test_a_start_becomes_a_whole_order_with_its_own_key() -> None:
    agent = FakeAgent()
    event = await performer(agent=agent).perform(START)
    assert event == ReplicaOrderTaken("replica-1", 1, "start")
    [(_, order)] = agent.orders
    assert (order.replica_id, order.incarnation, order.node_id) == ("replica-1", 1, "node-1")
    assert (order.model_path, order.engine_kind) == ("/models/tiny", "command")
    assert order.engine_argv == ("serve", "{port}")
    assert order.key == "key of replica-1/1"
    assert (order.host, order.port_min, order.port_max) == ("127.0.0.1", 100, 200)
    assert order.start_timeout == 1200.0


@virtual
async def test_a_stop_is_passed_on_with_its_grace() -> None:
    agent = FakeAgent()
    assert await performer(agent=agent).perform(STOP) == ReplicaOrderTaken("replica-1", 1, "stop")
    assert agent.orders == [("stop", ("replica-1", 1, 5.0))]


@pytest.mark.parametrize(
    ("error", "definite"),
    [(AgentRefused("m"), True), (AgentUnreachable("m"), False), (OSError("m"), False)],
)
@pytest.mark.parametrize(("action", "order"), [(START, "start"), (STOP, "stop")])
@virtual
async def test_an_order_that_failed_says_whether_it_was_refused(
    action: Any, order: str, error: Exception, definite: bool
) -> None:
    event = await performer(agent=FakeAgent(error=error)).perform(action)
    assert event == ReplicaOrderFailed("replica-1", 1, order, "m", definite)


@virtual
async def test_an_agent_that_hangs_is_not_waited_for() -> None:
    agent = FakeAgent()
    agent.start = hang_on_order  # type: ignore[method-assign]
    event = await performer(agent=agent).perform(START)
    assert isinstance(event, ReplicaOrderFailed)
    assert not event.definite
    assert event.message == "the agent did not answer within 15 s"


async def hang_on_order(_order: object) -> None:
    await hang()


@virtual
async def test_a_version_of_a_model_that_is_not_configured_is_not_started() -> None:
    agent = FakeAgent()
    old = StartReplica("replica-1", 1, "node-1", "tiny", "oldhash", 1, "127.0.0.1")
    event = await performer(agent=agent).perform(old)
    assert isinstance(event, ReplicaOrderFailed)
    assert event.definite
    assert agent.orders == []
