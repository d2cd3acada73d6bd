"""The phases in which something is killed: how each is brought about, held, and recognised.

Every phase is waited for in the controller's own status. What holds it (a provider that hangs, an
engine behind its gate, long streams) is let go right after the kill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.e2e.kill_site import Site, View
from tests.e2e.watched_load import WatchedLoad

LONG = 150
"""Tokens of a stream that outlasts every other one."""
_DRAIN = 60.0


@dataclass(frozen=True, slots=True)
class Subject:
    """The node whose phase it is, and the replica, if it is a replica's phase."""

    node_id: str
    replica_id: str = ""


Enter = Callable[[Site, WatchedLoad], Awaitable[Subject]]
Holds = Callable[[View, WatchedLoad, Subject], bool]


@dataclass(frozen=True, slots=True)
class Scene:
    """One phase. `before` and `after`: replicas wanted when it begins and when it is over.

    `there`: which of a machine's processes run on the subject's machine in this phase; of others
    that of another node is killed.
    """

    name: str
    before: int
    after: int
    enter: Enter
    holds: Holds
    there: frozenset[str]


_NO_PART: frozenset[str] = frozenset()
_MACHINE = frozenset({"machine", "watcher", "raylet"})
_ALL = _MACHINE | {"actor", "engine supervisor", "engine"}


def _node_in(phase: str) -> Callable[[View], Subject | None]:
    def seen(view: View) -> Subject | None:
        return next((Subject(n) for n, p in view.nodes.items() if p == phase), None)

    return seen


async def _requested(site: Site, _load: WatchedLoad) -> Subject:
    site.hang_provider()
    await site.scale(2)
    return await site.find("a node REQUESTED", _node_in("requested"))


async def _booting(site: Site, _load: WatchedLoad) -> Subject:
    await site.scale(2)
    return await site.find("a node BOOTING", _node_in("booting"))


async def _empty_node(site: Site) -> Subject:
    """From two replicas to one: the other one's node has nothing to do."""
    await site.scale(1)
    return await site.find(
        "a node READY and empty", lambda v: next((Subject(n) for n in v.empty_nodes()), None)
    )


async def _node_ready(site: Site, _load: WatchedLoad) -> Subject:
    return await _empty_node(site)


async def _starting(site: Site, _load: WatchedLoad) -> Subject:
    await _empty_node(site)
    site.close_gate()
    await site.scale(2)

    def seen(view: View) -> Subject | None:
        # With its engine there, so that each of its processes can be killed.
        behind_gate = view.living.engines()
        return next(
            (
                Subject(view.node_of(r), r)
                for r, phase in view.replicas.items()
                if phase == "starting" and behind_gate[r]
            ),
            None,
        )

    return await site.find("a replica STARTING", seen)


async def _streaming(site: Site, load: WatchedLoad) -> Subject:
    def seen(view: View) -> Subject | None:
        streams = load.streaming_on()
        return next((Subject(n, r) for r, n in view.ready.items() if streams[r]), None)

    return await site.find("a stream from a READY replica", seen)


async def _draining(site: Site, load: WatchedLoad) -> Subject:
    for _ in range(4):  # least loaded first: each replica gets some
        load.stream_beside(LONG)

    def seen(view: View) -> Subject | None:
        streams = {r.replica for r in load.requests if r.tokens == LONG and r.end is None}
        return next((Subject(n, r) for r, n in view.ready.items() if r in streams), None)

    subject = await site.find("a long stream", seen)
    await site.drain(subject.node_id, _DRAIN)
    return subject


async def _terminating(site: Site, _load: WatchedLoad) -> Subject:
    subject = await _empty_node(site)
    site.hang_provider()
    await site.drain(subject.node_id, _DRAIN)
    return subject


def _node_is(phase: str) -> Holds:
    return lambda view, _load, subject: view.nodes.get(subject.node_id) == phase


def _is_empty_and_ready(view: View, _load: WatchedLoad, subject: Subject) -> bool:
    return subject.node_id in view.empty_nodes()


def _replica_is(phase: str, streaming: bool) -> Holds:
    def holds(view: View, load: WatchedLoad, subject: Subject) -> bool:
        streams = load.streaming_on()[subject.replica_id]
        return view.replicas.get(subject.replica_id) == phase and (not streaming or streams > 0)

    return holds


SCENES = (
    Scene("node requested", 1, 2, _requested, _node_is("requested"), _NO_PART),
    Scene("replica starting", 2, 2, _starting, _replica_is("starting", False), _ALL),
    Scene("replica ready", 2, 2, _streaming, _replica_is("ready", True), _ALL),
    Scene("replica draining", 2, 2, _draining, _replica_is("draining", True), _ALL),
    Scene("node terminating", 2, 1, _terminating, _node_is("terminating"), _MACHINE),
    Scene("node booting", 1, 2, _booting, _node_is("booting"), _MACHINE),
    Scene("node ready", 2, 1, _node_ready, _is_empty_and_ready, _MACHINE),
)
"""In an order in which each begins about where the one before it ended, the last like the first."""
