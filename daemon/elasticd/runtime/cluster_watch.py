"""Watches the Ray cluster through its agent, by long poll."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import structlog

from elasticd.agent_api.client import AgentRefused, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaReport
from elasticd.core.codec import encode
from elasticd.core.events import (
    ClusterObserved,
    ClusterUnreachable,
    NodeSeen,
    NoticeSeen,
    ReplicaSeen,
)
from elasticd.runtime.ports import Agent, Clock, Emit

_log = structlog.get_logger()

_NOTHING = ("", -1)
"""What the agent is asked for while nothing of it is known: its state at once."""


@dataclass(frozen=True, slots=True)
class PollTimes:
    """Seconds: how long the agent may hold an unchanged answer, how much later it counts as away,
    how soon it is asked again after a failure, and from one question to the next at the least: a
    notice that comes in between waits for that."""

    wait: float = 2.0
    late: float = 10.0
    retry: float = 1.0
    spacing: float = 0.05


_A_WHILE = 2.5
"""Seconds since a replica last answered: it is asked again one second after each answer."""


class ClusterWatch:
    """Turns the agent's state into events, also an unchanged one: its age is a fact too."""

    def __init__(self, agent: Agent, clock: Clock, emit: Emit, times: PollTimes) -> None:
        self._agent = agent
        self._clock = clock
        self._emit = emit
        self._times = times
        self._seen_at: float | None = None
        self._error = ""

    @property
    def seen(self) -> bool:
        """Whether the agent has answered at least once."""
        return self._seen_at is not None

    async def run(self) -> None:
        """Until it is cancelled."""
        known: tuple[str, int] = _NOTHING
        event: ClusterObserved | None = None
        silent: set[str] = set()
        while True:
            asked = self._clock.now()
            try:
                state = await self._ask(*known)
                news = known != (state.incarnation, state.version) or silent != _silent(state)
                if event is None or news or _pressing(state):
                    event, silent = observed(state), _silent(state)
                    encode(event)
            except Exception as error:
                self._away(error)
                known, event = _NOTHING, None
                await asyncio.sleep(self._times.retry)
                continue
            known = (state.incarnation, state.version)
            self._seen_at, self._error = self._clock.now(), ""
            self._emit(event)
            await asyncio.sleep(asked + self._times.spacing - self._clock.now())

    def summary(self) -> dict[str, Any]:
        """JSON-able; `seen_age` in seconds, `None` before the first answer."""
        age = None if self._seen_at is None else self._clock.now() - self._seen_at
        return {"seen_age": age, "error": self._error}

    async def _ask(self, incarnation: str, version: int) -> ClusterState:
        limit = self._times.wait + self._times.late
        try:
            async with asyncio.timeout(limit):
                return await self._agent.state(incarnation, version, self._times.wait)
        except TimeoutError as late:
            raise AgentUnreachable(f"the agent did not answer within {limit:g} s") from late

    def _away(self, error: Exception) -> None:
        """Nothing is known now. What is not an answer we understand is no knowledge either."""
        if not isinstance(error, AgentUnreachable | AgentRefused):
            _log.warning("agent_answer_not_understood", exc_info=error)
        self._error = str(error) or repr(error)
        self._emit(ClusterUnreachable(self._error))


def observed(state: ClusterState) -> ClusterObserved:
    """The agent's words in the core's."""
    return ClusterObserved(
        nodes=tuple(
            NodeSeen(
                *(n.node_id, n.alive, n.gpus, n.boot, n.log_tail, n.held, n.mismatch),
                tuple(NoticeSeen(m.notice_id, m.kind, m.seconds_left) for m in n.notices),
                n.notices_complete,
            )
            for n in state.nodes
        ),
        replicas=tuple(_replica(r) for r in state.replicas),
        complete=state.complete,
        detail=state.detail,
    )


def _pressing(state: ClusterState) -> bool:
    """Whether time runs in it although nothing is new."""
    return any(node.notices for node in state.nodes)


def _replica(report: ReplicaReport) -> ReplicaSeen:
    """A replica that is stopping is neither ready nor stopped: nothing can be said of it.

    Of one that serves, the log is left out and a silence counts in whole seconds: both change
    with every report, in all of a large fleet, and tell nothing.
    """
    known = report.phase in {"fetching", "starting", "ready", "stopped"}
    return ReplicaSeen(
        replica_id=report.replica_id,
        incarnation=report.incarnation,
        node_id=report.node_id,
        phase=report.phase if known else "unknown",
        url=report.url,
        load_phase=report.load_phase,
        stalled_for=_whole_seconds(report.stalled_for),
        error=report.error,
        log_tail=() if report.phase == "ready" else report.stderr_tail,
        unordered=report.unordered,
        answers=_answers(report),
    )


def _answers(report: ReplicaReport) -> bool:
    """An actor that was last heard of a while ago says nothing of now."""
    return report.answers and report.age < _A_WHILE


def _silent(state: ClusterState) -> set[str]:
    """Those that do not answer: an age is no news for the agent."""
    return {r.replica_id for r in state.replicas if not _answers(r)}


def _whole_seconds(value: float | None) -> float | None:
    return float(math.floor(value)) if value is not None and math.isfinite(value) else None
