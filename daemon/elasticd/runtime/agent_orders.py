"""Start orders that the agent has taken are not lost with it.

The agent says "taken" before there is an actor. When it dies in between, its next life knows
nothing of the order, and the core would count a failed start for an engine that was never tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaOrder
from elasticd.runtime.ports import Agent, Clock

FORGOTTEN_AFTER = 60.0
"""Seconds after which an order that was never shown is no longer given again: the core has decided
on its replica long before."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Taken:
    """`life` is the agent's life that was known when it was given, `at` the time."""

    order: ReplicaOrder
    life: str
    at: float


class AgentOrders:
    """The agent, as the rest of the shell sees it. Implements `Agent`.

    An order that was taken and never shown is given again, once, to the agent's next life: it is
    the same replica and incarnation, so twice does no harm.
    """

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._life = ""
        self._unseen: dict[tuple[str, int], _Taken] = {}

    async def start(self, order: ReplicaOrder) -> None:
        """As the agent."""
        life = self._life
        await self._agent.start(order)
        self._unseen[order.replica_id, order.incarnation] = _Taken(order, life, self._clock.now())

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        """As the agent."""
        self._unseen.pop((replica_id, incarnation), None)
        await self._agent.stop(replica_id, incarnation, grace)

    async def state(self, incarnation: str, version: int, wait: float) -> ClusterState:
        """As the agent; gives again what its earlier life took with it."""
        state = await self._agent.state(incarnation, version, wait)
        self._life = state.incarnation
        if state.complete and self._unseen:
            await self._give_again(state)
        return state

    async def _give_again(self, state: ClusterState) -> None:
        for report in state.replicas:
            self._unseen.pop((report.replica_id, report.incarnation), None)
        forgotten = self._clock.now() - FORGOTTEN_AFTER
        for key, taken in list(self._unseen.items()):
            if taken.life == state.incarnation and taken.at > forgotten:
                continue
            # Gone meanwhile: stopped, while another one was on its way.
            if self._unseen.pop(key, None) is not None and taken.at > forgotten:
                await self._start_again(taken.order)

    async def _start_again(self, order: ReplicaOrder) -> None:
        try:
            await self._agent.start(order)
        except (AgentRefused, AgentUnreachable) as failed:
            _log.warning("order_not_given_again", replica=order.replica_id, why=str(failed))
        else:
            _log.info("order_given_again", replica=order.replica_id)
