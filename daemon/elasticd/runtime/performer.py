"""Carries out one action and says in one event what became of it; it never raises.

The class of a provider's error decides: a *definite* refusal means that no machine was made and
none will come of this call. Everything else is "not known", and the core asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.core.actions import (
    LaunchNode,
    ReadBootLog,
    StartReplica,
    StopReplica,
    TerminateNode,
)
from elasticd.core.codec import encode
from elasticd.core.events import (
    BootLogRead,
    Event,
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
    BootLog,
    InstanceNotFound,
    LaunchRequest,
    NoCapacity,
    PriceTooHigh,
    Provider,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Rejected,
)
from elasticd.runtime.orders import OrderMaker, UnknownSpec
from elasticd.runtime.ports import Agent

DEFINITE = (
    NoCapacity,
    QuotaExceeded,
    PriceTooHigh,
    AuthFailed,
    BillingBlocked,
    Rejected,
    InstanceNotFound,
)
"""After these no machine comes of the launch; any other error leaves that open."""

Call = LaunchNode | TerminateNode | ReadBootLog | StartReplica | StopReplica
"""The actions that touch the world outside, and so end in an event."""

TAIL_LINES, TAIL_WIDTH = 20, 300

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Identity:
    """What marks a machine as ours."""

    cluster: str
    ledger_id: str


class Performer:
    """Speaks to providers and to the agent.

    `bootstrap` renders a node's boot script from its pool, its id and the GPUs that it should have.
    """

    def __init__(
        self,
        identity: Identity,
        pools: Mapping[str, Provider],
        agent: Agent,
        orders: OrderMaker,
        bootstrap: Callable[[str, str, int], str],
        agent_timeout: float = 15.0,
    ) -> None:
        self._identity = identity
        self._pools = pools
        self._agent = agent
        self._orders = orders
        self._bootstrap = bootstrap
        self._agent_timeout = agent_timeout

    async def perform(self, action: Call) -> Event:
        """Exactly one event; only cancellation gets out of here as an exception."""
        try:
            return await self._attempt(action)
        except Exception as fault:
            _log.exception("action_fault", action=type(action).__name__, subject=subject_of(action))
            return failure(action, type(fault).__name__, str(fault) or repr(fault))

    async def _attempt(self, action: Call) -> Event:
        match action:
            case LaunchNode():
                return await self._launch(action)
            case TerminateNode():
                return await self._terminate(action)
            case ReadBootLog():
                return await self._boot_log(action)
            case StartReplica() | StopReplica():
                return await self._order(action)

    async def _launch(self, action: LaunchNode) -> Event:
        provider = self._pools.get(action.pool)
        if provider is None:
            return failure(action, "Rejected", _no_pool(action.pool), definite=True)
        request = LaunchRequest(
            node_id=action.node_id,
            cluster=self._identity.cluster,
            ledger_id=self._identity.ledger_id,
            offerings=action.offerings,
            # The least of what may come: a machine with more is as good.
            bootstrap=self._bootstrap(
                action.pool,
                action.node_id,
                min((o.gpu_count for o in action.offerings), default=0),
            ),
        )
        try:
            instance = await provider.launch(request)
        except ProviderError as error:
            after = error.after if isinstance(error, RateLimited) else None
            definite = isinstance(error, DEFINITE)
            return failure(action, type(error).__name__, str(error), definite, after)
        encode(instance)  # what cannot be recorded is a fault of the provider: said here
        return LaunchAnswered(action.node_id, instance)

    async def _terminate(self, action: TerminateNode) -> Event:
        provider = self._pools.get(action.pool)
        if provider is None:
            return failure(action, "Rejected", _no_pool(action.pool))
        try:
            await provider.terminate(action.instance_id)
        except InstanceNotFound:
            return TerminateAnswered(action.node_id, action.instance_id, gone=True)
        except ProviderError as error:
            return failure(action, type(error).__name__, str(error))
        return TerminateAnswered(action.node_id, action.instance_id, gone=False)

    async def _boot_log(self, action: ReadBootLog) -> Event:
        provider = self._pools.get(action.pool)
        if not isinstance(provider, BootLog):
            return BootLogRead(action.node_id, ())
        try:
            told = await provider.boot_log(action.instance_id)
        except ProviderError as error:
            return BootLogRead(action.node_id, (f"(no boot log: {error})",))
        return BootLogRead(action.node_id, last_lines(told))

    async def _order(self, action: StartReplica | StopReplica) -> Event:
        try:
            async with asyncio.timeout(self._agent_timeout):
                if isinstance(action, StartReplica):
                    await self._agent.start(self._orders.make(action))
                else:
                    await self._agent.stop(action.replica_id, action.incarnation, action.grace)
        except (AgentRefused, UnknownSpec) as refused:
            return failure(action, type(refused).__name__, str(refused), definite=True)
        except (AgentUnreachable, TimeoutError) as away:
            message = str(away) or f"the agent did not answer within {self._agent_timeout:g} s"
            return failure(action, type(away).__name__, message)
        return ReplicaOrderTaken(action.replica_id, action.incarnation, order_of(action))


def failure(
    action: Call, error: str, message: str, definite: bool = False, after: float | None = None
) -> Event:
    """The event that ends an action which did not work."""
    match action:
        case LaunchNode():
            return LaunchFailed(action.node_id, error, message, definite, after)
        case TerminateNode():
            return TerminateFailed(action.node_id, action.instance_id, error, message)
        case ReadBootLog():
            return BootLogRead(action.node_id, (f"(no boot log: {error}: {message})",))
        case StartReplica() | StopReplica():
            return ReplicaOrderFailed(
                action.replica_id, action.incarnation, order_of(action), message, definite
            )


def order_of(action: StartReplica | StopReplica) -> str:
    """The order's word in events."""
    return "start" if isinstance(action, StartReplica) else "stop"


def subject_of(action: Call) -> str:
    """Whom the action is about: a node (an orphan: its instance) or one start of a replica."""
    match action:
        case LaunchNode():
            return action.node_id
        case TerminateNode():
            return action.node_id or action.instance_id
        case ReadBootLog():
            return action.node_id
        case StartReplica() | StopReplica():
            return f"{action.replica_id}/{action.incarnation}"


def last_lines(text: str) -> tuple[str, ...]:
    """The end of a log as the ledger keeps it: printable, so many lines of so many characters."""
    lines = (
        "".join(c if c.isprintable() or c == "\t" else " " for c in line).rstrip()[:TAIL_WIDTH]
        for line in text.splitlines()
    )
    return tuple([line for line in lines if line][-TAIL_LINES:])


def _no_pool(pool: str) -> str:
    return f"pool {pool!r} is not configured (any more); put it back to manage its machines"
