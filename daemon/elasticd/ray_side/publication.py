"""One cluster state for all who ask, with a version that grows when something happened.

Ages, counters and the log lines of what runs change all the time; they are as fresh as the asking,
and make no new version. The log of a machine that is not in Ray is news: it tells why.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Hashable
from dataclasses import replace

from elasticd.agent_api.messages import ClusterState, NodeReport, ReplicaReport

_STALL_STEP = 10.0

Draft = Callable[[str, int], ClusterState]


class Publication:
    """`draft` makes the state of the moment for an incarnation and a version."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._incarnation = secrets.token_hex(8)
        self._version = 0
        self._digest: Hashable = None
        self._news = asyncio.Event()

    def poke(self) -> None:
        """Something may have changed."""
        digest = _digest(self._draft(self._incarnation, 0))
        if digest != self._digest:
            self._digest = digest
            self._version += 1
            self._news.set()
            self._news = asyncio.Event()

    def current(self) -> ClusterState:
        """The state of this moment."""
        self.poke()
        return self._draft(self._incarnation, self._version)

    async def newer(self, incarnation: str, version: int, wait: float) -> ClusterState:
        """The state once it is newer than the caller's, or after `wait` seconds as it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                self.poke()
                while incarnation == self._incarnation and version >= self._version:
                    await self._news.wait()
        return self.current()


def _digest(state: ClusterState) -> Hashable:
    return (
        state.complete,
        state.head_alive,
        state.detail,
        tuple(_steady_node(node) for node in state.nodes),
        tuple(_steady_replica(replica) for replica in state.replicas),
    )


def _steady_node(node: NodeReport) -> NodeReport:
    return replace(
        node,
        watcher_age=None,
        log_tail=() if node.alive else node.log_tail,
        notices=tuple(replace(notice, seconds_left=None) for notice in node.notices),
    )


def _steady_replica(replica: ReplicaReport) -> ReplicaReport:
    stalled = replica.stalled_for
    return replace(
        replica,
        running=None,
        waiting=None,
        generated_tokens=None,
        since_start=0.0,
        age=0.0,
        stderr_tail=(),
        stalled_for=None if stalled is None else stalled // _STALL_STEP,
    )
